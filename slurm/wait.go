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

// Wait asks for a job's state, first after 1 s and in the end every 15 s, until
// the job is done, and returns its last state. Each answer is passed to seen,
// which may be nil. id is as in [Client.State]; an array is done when all its
// elements are.
//
// Nothing is concluded from silence: a controller that does not answer and a job
// that it does not know are asked for again. After 10 minutes without knowing
// anything Wait gives up with an error that says so; the job may still be
// running. Only a missing program ends the waiting at once.
func (c Client) Wait(ctx context.Context, id string, seen func(JobState)) (JobState, error) {
	all, err := c.WaitAll(ctx, []string{id}, func(states []JobState) {
		if seen != nil {
			seen(states[0])
		}
	})
	if len(all) == 0 {
		return JobState{}, err
	}
	return all[0], err
}

// WaitAll is Wait for many jobs, or elements of arrays, with one [Client.State]
// for all of them each time. It returns their last states in the order of ids
// once all are done. After each answer seen, which may be nil, gets all states;
// it must not keep the slice.
//
// A job that is done is not asked for again. One of which nothing is known for
// 10 minutes is given up, the others are waited for, and the error names it.
func (c Client) WaitAll(ctx context.Context, ids []string, seen func([]JobState)) ([]JobState, error) {
	if err := checkIDs(ids); err != nil {
		return nil, fmt.Errorf("waiting for %w", err)
	}
	w := newWaiting(ids, time.Now())
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		open := w.open()
		if len(open) == 0 {
			return w.last, w.err()
		}
		states, err := c.State(ctx, open...)
		if errors.Is(err, exec.ErrNotFound) {
			return w.last, fmt.Errorf("waiting for job %s: %w", someOf(open), err)
		}
		now := time.Now()
		if err == nil {
			shown := w.take(states, now)
			if seen != nil {
				seen(shown)
			}
		}
		w.giveUp(now, err)
		if len(w.open()) == 0 {
			return w.last, w.err()
		}
		select {
		case <-ctx.Done():
			return w.last, fmt.Errorf("waiting for job %s: %w", someOf(w.open()), context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// waiting is what WaitAll knows about its jobs, each at its place in ids.
type waiting struct {
	ids       []string
	last      []JobState // the last state that was not unknown
	lastKnown []time.Time
	settled   []bool // done, or given up
	silent    *silenceError
}

func newWaiting(ids []string, now time.Time) *waiting {
	w := &waiting{ids: ids, settled: make([]bool, len(ids))}
	for _, id := range ids {
		j := unknown(id)
		j.Reason = ""
		w.last = append(w.last, j)
		w.lastKnown = append(w.lastKnown, now)
	}
	return w
}

// open lists the jobs that are still to be asked for.
func (w *waiting) open() []string {
	var ids []string
	for i, id := range w.ids {
		if !w.settled[i] {
			ids = append(ids, id)
		}
	}
	return ids
}

// take notes the states of the open jobs and returns those of all, as they were
// told this time.
func (w *waiting) take(states []JobState, now time.Time) []JobState {
	shown := make([]JobState, len(w.ids))
	for i := range w.ids {
		if w.settled[i] {
			shown[i] = w.last[i]
			continue
		}
		shown[i], states = states[0], states[1:]
		if shown[i].State != StateUnknown {
			w.last[i], w.lastKnown[i] = shown[i], now
		}
		w.settled[i] = shown[i].Done()
	}
	return shown
}

// giveUp settles the jobs that have been silent for too long; err is of the call
// that has just failed.
func (w *waiting) giveUp(now time.Time, err error) {
	for i, id := range w.ids {
		silent := now.Sub(w.lastKnown[i])
		if w.settled[i] || silent < patience {
			continue
		}
		w.settled[i] = true
		if w.silent == nil {
			w.silent = &silenceError{silent: silent, last: err}
		}
		w.silent.ids = append(w.silent.ids, id)
	}
}

// err is nil where no job was given up.
func (w *waiting) err() error {
	if w.silent == nil {
		return nil
	}
	return w.silent
}

// silenceError is jobs of which nothing was heard for long.
type silenceError struct {
	ids    []string
	silent time.Duration
	last   error // of the last call, if it failed
}

func (e *silenceError) Error() string {
	s := fmt.Sprintf("waiting for job %s: its state has been unknown for %s", someOf(e.ids), e.silent.Round(time.Second))
	if e.last != nil {
		s += ": " + e.last.Error()
	}
	return s
}

func (e *silenceError) Unwrap() error { return e.last }

// Hint says where else to look.
func (e *silenceError) Hint() string {
	return fmt.Sprintf("the job may have ended or still run: see its log, or ask later with `squeue --jobs=%s`", e.ids[0])
}
