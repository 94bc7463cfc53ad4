package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

const (
	// The interval between two queries doubles from minPollInterval to maxPollInterval.
	minPollInterval = time.Second
	maxPollInterval = 15 * time.Second

	// unknownTimeout limits how long a job's state may be unknown. It is long enough for a
	// restart of the controller.
	unknownTimeout = 10 * time.Minute
)

// Wait queries the state of a job until the job is done. The interval between two queries
// doubles from 1 s to 15 s. Wait returns the last known state. It calls update, unless it is
// nil, with each state. id is as in [Client.State]. A job array is done when all its tasks are.
//
// If the controller does not reply or has no record of the job, Wait continues. After 10
// minutes without a known state it returns an error; the job may still be running. If
// squeue is not installed, it returns an error immediately.
func (c Client) Wait(ctx context.Context, id string, update func(JobState)) (JobState, error) {
	all, err := c.WaitAll(ctx, []string{id}, func(states []JobState) {
		if update != nil {
			update(states[0])
		}
	})
	if len(all) == 0 {
		return JobState{}, err
	}
	return all[0], err
}

// WaitAll waits for several jobs, like [Client.Wait], with one query for all of them. It
// returns their last known states in the order of ids. After each query it calls update,
// unless it is nil, with the states of all jobs. update must not retain the slice.
//
// WaitAll does not query jobs that are done. It stops waiting for a job whose state was
// unknown for 10 minutes, but continues to wait for the others. The error names such jobs.
func (c Client) WaitAll(ctx context.Context, ids []string, update func([]JobState)) ([]JobState, error) {
	if err := checkIDs(ids); err != nil {
		return nil, fmt.Errorf("wait for %w", err)
	}
	w := newWaitList(ids, time.Now())
	for interval := minPollInterval; ; interval = min(2*interval, maxPollInterval) {
		open := w.open()
		if len(open) == 0 {
			return w.last, w.err()
		}
		states, err := c.State(ctx, open...)
		if errors.Is(err, exec.ErrNotFound) {
			return w.last, fmt.Errorf("wait for %s: %w", listIDs(open), err)
		}
		now := time.Now()
		if err == nil {
			all := w.update(states, now)
			if update != nil {
				update(all)
			}
		}
		w.closeUnknown(now, err)
		if open = w.open(); len(open) == 0 {
			return w.last, w.err()
		}
		select {
		case <-ctx.Done():
			return w.last, fmt.Errorf("wait for %s: %w", listIDs(open), context.Cause(ctx))
		case <-time.After(interval):
		}
	}
}

// A waitList holds the jobs of WaitAll. The slices have the order of ids.
type waitList struct {
	ids       []string
	last      []JobState  // last known states
	lastKnown []time.Time // times of the last known states
	closed    []bool      // done, or unknown for too long

	unknown    []string      // IDs of the jobs that were unknown for too long
	unknownFor time.Duration // how long the first of them was unknown
	unknownErr error         // of the last query at that time, or nil
}

func newWaitList(ids []string, now time.Time) *waitList {
	w := &waitList{ids: ids, closed: make([]bool, len(ids))}
	for _, id := range ids {
		j := unknownJob(id)
		j.Reason = ""
		w.last = append(w.last, j)
		w.lastKnown = append(w.lastKnown, now)
	}
	return w
}

// open returns the jobs to query.
func (w *waitList) open() []string {
	var ids []string
	for i, id := range w.ids {
		if !w.closed[i] {
			ids = append(ids, id)
		}
	}
	return ids
}

// update stores the states of the open jobs. It returns the states of all jobs, including
// unknown ones.
func (w *waitList) update(states []JobState, now time.Time) []JobState {
	all := make([]JobState, len(w.ids))
	for i := range w.ids {
		if w.closed[i] {
			all[i] = w.last[i]
			continue
		}
		all[i], states = states[0], states[1:]
		if all[i].State != StateUnknown {
			w.last[i], w.lastKnown[i] = all[i], now
		}
		w.closed[i] = all[i].Done()
	}
	return all
}

// closeUnknown closes jobs whose state was unknown for too long. err is the error of the
// last query.
func (w *waitList) closeUnknown(now time.Time, err error) {
	for i, id := range w.ids {
		elapsed := now.Sub(w.lastKnown[i])
		if w.closed[i] || elapsed < unknownTimeout {
			continue
		}
		w.closed[i] = true
		if len(w.unknown) == 0 {
			w.unknownFor, w.unknownErr = elapsed, err
		}
		w.unknown = append(w.unknown, id)
	}
}

// err returns the error for the jobs whose state is unknown, or nil.
func (w *waitList) err() error {
	if len(w.unknown) == 0 {
		return nil
	}
	err := fmt.Errorf("wait for %s: state unknown for %s", listIDs(w.unknown), w.unknownFor.Round(time.Second))
	if w.unknownErr != nil {
		err = fmt.Errorf("%w: %w", err, w.unknownErr)
	}
	return hints.Add(err, fmt.Sprintf("check the job's log, or run `squeue --jobs=%s` later: the job may still be running", w.unknown[0]))
}
