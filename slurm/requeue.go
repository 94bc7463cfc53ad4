package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// requeueDelay is the first pause between two questions about a requeue whose outcome is
// unknown. It doubles up to requeueMaxDelay.
const (
	requeueDelay    = time.Second
	requeueMaxDelay = 15 * time.Second
)

// UnansweredError is a requeue of which Slurm has not said whether it will happen.
type UnansweredError struct {
	ID  string
	Err error // of the last question
}

// Error names the job and the last failure.
func (e *UnansweredError) Error() string {
	return fmt.Sprintf("requeue job %s: Slurm has not answered: %v", e.ID, e.Err)
}

// Unwrap returns the last failure.
func (e *UnansweredError) Unwrap() error { return e.Err }

// Requeue ends a job, or an element of an array ("18_3"), and puts it back into the
// queue under its id. Slurm starts it again two minutes later at the earliest. Restarts
// is how often the job had been requeued when it started.
//
// The batch script of the job may call Requeue. Slurm then ends the script's processes,
// among them the scontrol that asked. If scontrol is killed or the controller does not
// answer, the outcome is unknown. Requeue then looks at the job, and asks again only if
// the job still runs and was not requeued. It returns an [*UnansweredError] if ctx ends
// first, and any other error if Slurm refuses.
func (c Client) Requeue(ctx context.Context, id string, restarts int) error {
	if err := checkIDs([]string{id}); err != nil {
		return fmt.Errorf("requeue %w", err)
	}
	delay := requeueDelay
	for {
		_, err := c.run(ctx, "", "scontrol", "requeue", id)
		if err == nil {
			return nil
		}
		for {
			if errors.Is(err, exec.ErrNotFound) {
				return fmt.Errorf("requeue job %s: %w", id, err)
			}
			job, unknown := c.showJob(ctx, id)
			if unknown == nil && numberOrUnknown(job["Restarts"]) > restarts {
				return nil
			}
			// A refusal counts while the job still is as it was, and if it is gone.
			runs := unknown == nil && job["JobState"] == string(StateRunning)
			if unknown == nil && (isRefusal(err) || !runs) || unknown != nil && isRefusal(unknown) {
				return fmt.Errorf("requeue job %s: %w", id, err)
			}
			if !sleep(ctx, delay) {
				return &UnansweredError{ID: id, Err: err}
			}
			delay = min(2*delay, requeueMaxDelay)
			if runs {
				break // ask again
			}
		}
	}
}

// sleep waits for a duration and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
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
