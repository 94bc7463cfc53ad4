package slurm

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
)

// Uncertain says whether a submission that failed with err may have made a job
// all the same: sbatch gave no answer in time, was killed, lost the controller
// in the middle, or ended well without naming a job. Whoever tries again must
// look first, with [Client.FindByComment].
//
// It is false where nothing was asked (no sbatch, a request that this package
// refuses itself) and where Slurm has said no. A failure of which neither is
// known counts as uncertain: a look too many costs nothing, a second job does.
func Uncertain(err error) bool {
	var failed *CommandError
	switch {
	case err == nil:
		return false
	case errors.As(err, new(noIDError)):
		return true
	case !errors.As(err, &failed):
		return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	case errors.Is(err, exec.ErrNotFound):
		return false
	}
	if !isRefusal(err) {
		return true
	}
	_, refused := find(slices.Concat(unsent, refusals), failed.Stderr)
	// sbatch writes this before every error code of the controller; those of
	// the connection are among the silences.
	return !refused && !strings.Contains(failed.Stderr, "Batch job submission failed: ")
}

// Answered says whether sbatch, though it failed with err, heard from the controller
// all that it was to hear: a job that it may have made is known by now. Without an
// answer the controller may still be busy making it.
func Answered(err error) bool {
	return errors.As(err, new(noIDError)) || isRefusal(err)
}

// isRefusal says whether a program ended by itself with an error that is not
// about reaching the controller.
func isRefusal(err error) bool {
	var failed *CommandError
	var exit *exec.ExitError
	if !errors.As(err, &failed) || !errors.As(failed.Err, &exit) || !exit.Exited() {
		return false
	}
	_, silent := find(silences, failed.Stderr)
	return !silent
}
