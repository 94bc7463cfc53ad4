package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

const (
	firstPoll = time.Second
	lastPoll  = 15 * time.Second

	// patience is how long nothing may be known of a job before Wait gives up:
	// long enough for a restart of the controller.
	patience = 10 * time.Minute
)

// Wait asks for the job's state, first after 1 s and in the end every 15 s, until
// the job is done, and returns its last state. Each answer is passed to seen,
// which may be nil.
//
// Nothing is concluded from silence: a controller that does not answer and a job
// that it does not know are asked for again. After 10 minutes without knowing
// anything Wait gives up with an error that says so; the job may still be
// running. Only a missing program ends the waiting at once.
func (c Client) Wait(ctx context.Context, id string, seen func(JobState)) (JobState, error) {
	if !isID(id) {
		return JobState{}, fmt.Errorf("waiting for job %q: an id is a number", id)
	}
	last := JobState{ID: id, State: StateUnknown, Restarts: -1}
	lastKnown := time.Now()
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		states, err := c.State(ctx, id)
		if errors.Is(err, exec.ErrNotFound) {
			return last, fmt.Errorf("waiting for job %s: %w", id, err)
		}
		if err == nil {
			j := states[0]
			if seen != nil {
				seen(j)
			}
			if j.Done() {
				return j, nil
			}
			if j.State != StateUnknown {
				last, lastKnown = j, time.Now()
			}
		}
		if silent := time.Since(lastKnown); silent >= patience {
			return last, &silenceError{id: id, silent: silent, last: err}
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for job %s: %w", id, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// silenceError is a job of which nothing was heard for long.
type silenceError struct {
	id     string
	silent time.Duration
	last   error // of the last call, if it failed
}

func (e *silenceError) Error() string {
	s := fmt.Sprintf("waiting for job %s: its state has been unknown for %s", e.id, e.silent.Round(time.Second))
	if e.last != nil {
		s += ": " + e.last.Error()
	}
	return s
}

func (e *silenceError) Unwrap() error { return e.last }

// Hint says where else to look.
func (e *silenceError) Hint() string {
	return fmt.Sprintf("the job may have ended or still run: see its log, or ask later with `squeue --jobs=%s`", e.id)
}
