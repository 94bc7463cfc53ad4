package slurm

import (
	"context"
	"fmt"
	"strings"
)

// Cancel ends a job, an array with all its elements ("18"), or one element of it
// ("18_3"). Slurm sends SIGTERM, and SIGKILL after KillWait (30 s by
// default). A job that has ended already is no error; one that Slurm does not
// know is.
func (c Client) Cancel(ctx context.Context, id string) error {
	if err := checkIDs([]string{id}); err != nil {
		return fmt.Errorf("cancelling %w", err)
	}
	if _, err := c.run(ctx, "", "scancel", "--quiet", id); err != nil {
		return fmt.Errorf("cancelling job %s: %w", id, err)
	}
	return nil
}

// CancelStep sends a signal, such as "USR1", to every task of a step, such as
// "12.0"; without a signal it ends the step and leaves the job alone.
func (c Client) CancelStep(ctx context.Context, step, signal string) error {
	job, number, ok := strings.Cut(step, ".")
	if !ok || !isID(job) || !isID(number) {
		return fmt.Errorf("cancelling step %q: a step is written job.step, such as 12.0", step)
	}
	argv := []string{"scancel", "--quiet"}
	if signal != "" {
		if strings.Trim(signal, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
			return fmt.Errorf("cancelling step %s: %q is not a signal, such as USR1", step, signal)
		}
		argv = append(argv, "--signal="+signal)
	}
	if _, err := c.run(ctx, "", append(argv, step)...); err != nil {
		return fmt.Errorf("cancelling step %s: %w", step, err)
	}
	return nil
}
