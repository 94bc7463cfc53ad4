package slurm

import (
	"context"
	"fmt"
	"time"
)

// Requeue ends a job, or an element of an array ("18_3"), and puts it back into the
// queue under its id; Slurm starts it again two minutes later at the earliest. The
// job's own batch script may ask for it, and is ended by it.
func (c Client) Requeue(ctx context.Context, id string) error {
	if err := checkIDs([]string{id}); err != nil {
		return fmt.Errorf("requeueing %w", err)
	}
	if _, err := c.run(ctx, "", "scontrol", "requeue", id); err != nil {
		return fmt.Errorf("requeueing job %s: %w", id, err)
	}
	return nil
}

// EndTime asks the controller when a running job will reach its time limit, which may
// have been changed since it started; it is zero for a job without one.
func (c Client) EndTime(ctx context.Context, id string) (time.Time, error) {
	states, err := c.State(ctx, id)
	if err != nil || states[0].End == "" {
		return time.Time{}, err
	}
	end, err := time.ParseInLocation("2006-01-02T15:04:05", states[0].End, time.Local)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the end of job %s: %w", id, err)
	}
	return end, nil
}
