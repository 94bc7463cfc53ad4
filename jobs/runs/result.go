package runs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// A Result describes the end of a run's last job or launch.
type Result struct {
	Finished bool
	ExitCode int    // of a command that waits for the run; see package exitcode
	Text     string // for messages, such as "job 18 ended as failed: rank 3 on n2 was lost"
	Advice   string // how to fix the cause of a failure; empty if unknown
	Canceled bool   // the user canceled the run, so there is no failure to search for
	// SavedStep is the step of the newest checkpoint. It is -1 if there is no checkpoint that
	// this version of ddpbatch can resume from.
	SavedStep int
}

// jobResult returns the result of a run whose last job has ended in the given state.
func jobResult(dir rundir.Dir, job slurm.JobState) Result {
	state := outcome.Read(dir, job.ID)
	end := state.Ended()
	r := Result{Finished: job.Succeeded() && end != outcome.Stopped, SavedStep: savedStep(state), Canceled: job.State == slurm.StateCancelled}
	if r.Finished {
		return r
	}
	r.ExitCode = jobExitCode(job, r.SavedStep >= 0)
	r.Text = fmt.Sprintf("job %s ended as %s", job.ID, job)
	if end == outcome.Stopped {
		r.Text += ", stopped before the run had finished"
	}
	if job.ExitCode != "" {
		r.Text += ", " + slurm.FormatExitCode(job.ExitCode)
	}
	if r.Canceled {
		return r
	}
	if f := state.Failure; f != nil {
		r.Text += ": " + f.Reason
		r.Advice = f.Advice
	} else if why, advice := watch.LaunchFailure(dir, state, job.ExitCode); why != "" && job.State == slurm.StateFailed {
		r.Text += ", " + why
		r.Advice = advice
	} else if job.State == slurm.StateTimeout && r.SavedStep < 0 {
		r.Advice = watch.TimeLimitAdvice
	} else if r.SavedStep < 0 {
		r.Advice = state.ProgramAdvice("submit")
	}
	return r
}

// jobExitCode returns the exit code for a job that ended before its run finished. IsSaved is
// true if the run has a usable checkpoint.
func jobExitCode(job slurm.JobState, isSaved bool) int {
	switch job.State {
	case slurm.StateCompleted: // a program that stopped on request and exited with code 0
		return exitcode.Stopped
	case slurm.StateCancelled:
		return exitcode.Canceled
	case slurm.StateNodeFail, slurm.StateBootFail:
		return exitcode.Lost
	case slurm.StateTimeout, slurm.StatePreempted, slurm.StateDeadline:
		if isSaved {
			return exitcode.Stopped
		}
		return exitcode.Failed
	}
	// The format is "code:signal". The code is the launcher's exit code.
	text, _, _ := strings.Cut(job.ExitCode, ":")
	if code, err := strconv.Atoi(text); err == nil && code != exitcode.Done {
		return code
	}
	return exitcode.Failed
}

// launchResult returns the result of a run whose last launch without Slurm has ended.
func launchResult(run Run, end LaunchEnd) Result {
	state := outcome.Read(run.Dir, "")
	how := state.Ended()
	r := Result{Finished: how == outcome.Finished && end.Cause == "", SavedStep: savedStep(state)}
	if r.Finished {
		return r
	}
	name := run.Record.Name
	r.ExitCode = end.Exit
	switch {
	case end.Cause != "":
		r.Text = fmt.Sprintf("run %s ended: %s", name, end.Cause)
	case how == outcome.Stopped:
		r.Text = fmt.Sprintf("run %s was stopped before it had finished", name)
		if r.ExitCode == exitcode.Done { // a program that stopped on request and exited with code 0
			r.ExitCode = exitcode.Stopped
		}
		r.Advice = state.ProgramAdvice("launch")
	case how == outcome.Canceled:
		r.Text = fmt.Sprintf("run %s was canceled", name)
		r.Canceled = true
	default:
		r.Text = fmt.Sprintf("run %s ended with exit code %d", name, end.Exit)
		if f := state.Failure; f != nil {
			r.Text += ": " + f.Reason
			r.Advice = f.Advice
		}
	}
	return r
}

// savedStep returns the step of the newest checkpoint. It returns -1 if no checkpoint exists, or
// if only a newer version of ddpbatch can resume from it.
func savedStep(s outcome.State) int {
	if s.Newest == nil || s.Newest.IsNewer() {
		return -1
	}
	return s.Newest.Step
}
