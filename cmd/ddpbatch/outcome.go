package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// outcome returns an error if the job ended before its run finished, and nil otherwise. The
// error's exit code tells the kinds of ends apart.
func (p *program) outcome(dir rundir.Dir, s slurm.JobState) error {
	state := outcome.Read(dir, s.ID)
	end := state.Ended()
	if s.Succeeded() && end != outcome.Stopped {
		return nil
	}
	what := fmt.Sprintf("job %s ended as %s", s.ID, s)
	if end == outcome.Stopped {
		what += ", stopped before the run had finished"
	}
	if s.ExitCode != "" {
		what += ", " + slurm.FormatExitCode(s.ExitCode)
	}
	hint := "what it printed: ddpbatch logs " + shellQuote(p.short(dir.Path))
	if s.State != slurm.StateCancelled {
		hint += "; failures known in it: ddpbatch doctor --log " + shellQuote(p.short(dir.Path))
	}
	if f := state.Failure; f != nil && s.State != slurm.StateCancelled {
		what += ": " + f.Reason
		if f.Advice != "" {
			hint = f.Advice + "; " + hint
		}
	} else if why, advice := watch.Unlaunched(dir, s); why != "" && s.State == slurm.StateFailed {
		what += ", " + why
		if advice != "" {
			hint = advice + " " + hint
		}
	}
	step := newestStep(dir)
	if step >= 0 {
		hint = fmt.Sprintf("step %d is saved: submit the job again to go on from there; %s", step, hint)
	}
	return exitError{endCode(s, step >= 0), hints.Add(fmt.Errorf("%s", what), hint)}
}

// endCode returns the exit code for a job that ended before its run finished. Saved is true if
// the run has a checkpoint.
func endCode(s slurm.JobState, saved bool) int {
	switch s.State {
	case slurm.StateCompleted: // a program that stopped on request and exited with code 0
		return exitStopped
	case slurm.StateCancelled:
		return exitCancelled
	case slurm.StateNodeFail, slurm.StateBootFail:
		return exitLost
	case slurm.StateTimeout, slurm.StatePreempted, slurm.StateDeadline:
		if saved {
			return exitStopped
		}
		return exitFailed
	}
	// The format is "code:signal". The code is the launcher's exit code.
	text, _, _ := strings.Cut(s.ExitCode, ":")
	if code, err := strconv.Atoi(text); err == nil && code != exitDone {
		return code
	}
	return exitFailed
}

// newestStep returns the step of the newest checkpoint. It returns -1 if no checkpoint exists,
// or if only a newer version of ddpbatch can resume from it.
func newestStep(dir rundir.Dir) int {
	entries, err := checkpoint.List(dir.Checkpoints())
	if err != nil || len(entries) == 0 || entries[0].IsNewer() {
		return -1
	}
	return entries[0].Step
}
