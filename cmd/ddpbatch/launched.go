package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

const (
	// launchPoll is the interval between checks of a launcher that a command waits for.
	launchPoll = 250 * time.Millisecond
	// launchSilence is the timeout for a launcher on another host. A launcher writes live.json
	// every 2 s, but NFS can show an old version for a minute.
	launchSilence = 2 * time.Minute
)

// isLaunched reports whether `ddpbatch launch` without Slurm started the run most recently,
// rather than a Slurm job.
func (r knownRun) isLaunched() bool {
	var last time.Time // latest evidence of a launch
	if l, ok := r.dir.Launcher(); ok {
		last = l.Since
	}
	if end, ok := r.dir.ReadEnd(); ok && end.JobID == "" && end.Time.After(last) {
		last = end.Time
	}
	if live, ok := r.dir.ReadLive(); ok && live.JobID == "" && live.Time.After(last) {
		last = live.Time
	}
	submission := r.record.Last()
	return !last.IsZero() && (submission == nil || last.Truncate(time.Second).After(submission.Time))
}

// neverStarted returns the error for a run without a job and without a launcher.
func (r knownRun) neverStarted() error {
	if _, err := os.Stat(r.dir.RankLog(0)); err == nil {
		return exitError{exitUsage, hints.Add(fmt.Errorf("run %q has no launcher: its ranks were started by srun, torchrun, or mpirun", r.dir.Path),
			"find the output of the ranks in the output of that program; `ddpbatch logs --rank 0` shows the log of rank 0")}
	}
	return exitError{exitUsage, hints.Add(fmt.Errorf("run %q was never submitted to Slurm or launched", r.dir.Path),
		"start it with `ddpbatch submit`, or without Slurm with `ddpbatch launch`")}
}

// A launchEnd is the result of a launch without Slurm.
type launchEnd struct {
	exit  int
	cause string // reason for a missing exit code; empty if the launcher wrote one
}

// text describes the result for the user.
func (e launchEnd) text(run knownRun) string {
	if e.cause != "" {
		return fmt.Sprintf("run %s has ended: %s", run.record.Name, e.cause)
	}
	return fmt.Sprintf("run %s has ended: exit code %d", run.record.Name, e.exit)
}

// endOfLaunch returns the result of the last launch. It returns false while the launch is
// running.
func endOfLaunch(dir rundir.Dir, now time.Time) (launchEnd, bool) {
	l, held := dir.Launcher()
	live, ok := dir.ReadLive()
	hasLive := ok && live.JobID == ""
	running, silent := held, false
	switch {
	case !held: // no launcher, or an older version that did not record its PID
		running = hasLive && live.Phase != rundir.PhaseOver && now.Sub(live.Time) < launchSilence
	case l.IsHere():
		running = l.IsRunning()
	default:
		lastSeen := l.Since
		if hasLive && live.Time.After(lastSeen) {
			lastSeen = live.Time
		}
		silent = now.Sub(lastSeen) > launchSilence
	}
	// Read the result last: the launcher writes it before it releases the lock.
	if end, ok := dir.ReadEnd(); ok && end.JobID == "" && (!held || !end.Time.Before(l.Since)) {
		return launchEnd{exit: end.Exit}, true
	}
	switch {
	case silent:
		return launchEnd{exitFailed, fmt.Sprintf("its launcher on host %q wrote nothing for %s", l.Host, launchSilence)}, true
	case running:
		return launchEnd{}, false
	}
	if _, err := os.Stat(dir.Path); errors.Is(err, fs.ErrNotExist) {
		return launchEnd{exitFailed, "its run directory was moved or deleted"}, true
	}
	return launchEnd{exitFailed, "its launcher was killed"}, true
}

// waitForLaunch waits until the last launch of the run has ended.
func (p *program) waitForLaunch(ctx context.Context, run knownRun) (launchEnd, error) {
	for {
		if end, over := endOfLaunch(run.dir, time.Now()); over {
			return end, nil
		}
		select {
		case <-ctx.Done():
			return launchEnd{}, fmt.Errorf("wait for run %s: %w", run.record.Name, context.Cause(ctx))
		case <-time.After(launchPoll):
		}
	}
}

// launchOutcome returns an error with the launcher's exit code if the run did not finish. It
// returns nil if the run finished.
func (p *program) launchOutcome(run knownRun, end launchEnd) error {
	state := outcome.Read(run.dir, "")
	f, how := state.Failure, state.Ended()
	if how == outcome.Finished && end.cause == "" {
		return nil
	}
	path := shellQuote(p.short(run.dir.Path))
	what := fmt.Sprintf("run %s ended with exit code %d", run.record.Name, end.exit)
	code, hint := end.exit, "run `ddpbatch logs "+path+"` to see its output"
	switch {
	case end.cause != "":
		what = fmt.Sprintf("run %s ended: %s", run.record.Name, end.cause)
	case how == outcome.Stopped:
		what = fmt.Sprintf("run %s was stopped before it had finished", run.record.Name)
		if code == exitDone { // a program that stopped on request and exited with code 0
			code = exitStopped
		}
	case how == outcome.Canceled:
		what = fmt.Sprintf("run %s was canceled", run.record.Name)
	default:
		hint += ", or `ddpbatch doctor --log " + path + "` to find known failures in it"
		if f != nil {
			what += ": " + f.Reason
			if f.Advice != "" {
				hint = f.Advice + "; " + hint
			}
		}
	}
	if step := newestStep(run.dir); step >= 0 {
		hint = fmt.Sprintf("step %d is saved: launch the run again to continue from there; %s", step, hint)
	}
	return exitError{code, hints.Add(errors.New(what), hint)}
}

// cancelLaunch asks the launcher of a run to save and stop. The second call makes the launcher
// stop its ranks immediately, like a second Control-C.
func (p *program) cancelLaunch(run knownRun) error {
	name, path := run.record.Name, shellQuote(p.short(run.dir.Path))
	l, ok := run.dir.Launcher()
	elsewhere := ok && !l.IsHere()
	// A launcher on another host may only seem silent, because the file system is slow.
	if end, over := endOfLaunch(run.dir, time.Now()); over && (end.cause == "" || !elsewhere) {
		p.printf("%s\n", end.text(run))
		return nil
	}
	if !ok {
		return hints.Add(fmt.Errorf("cancel run %s: its launcher did not record its process ID", name),
			"press Control-C in its terminal, or send SIGTERM to its process")
	}
	if elsewhere {
		return hints.Add(fmt.Errorf("run %q was launched on host %q as process %d: it can be canceled only there", run.dir.Path, l.Host, l.PID),
			fmt.Sprintf("run `ddpbatch cancel %s` on %s", shellQuote(run.dir.Path), l.Host))
	}
	again := false
	if live, ok := run.dir.ReadLive(); ok && live.JobID == "" && !live.Time.Before(l.Since) {
		again = live.Phase == rundir.PhaseStopping
	}
	sig := syscall.SIGTERM
	if again {
		sig = syscall.SIGINT
	}
	switch err := l.Signal(sig); {
	case errors.Is(err, rundir.ErrNotRunning):
		return p.cancelLaunch(run)
	case err != nil:
		return fmt.Errorf("cancel run %s: %w", name, err)
	}
	if again {
		p.printf("requested that the launcher of run %s (process %d) kill its ranks immediately\n", name, l.PID)
		return nil
	}
	p.printf("requested that the launcher of run %s (process %d) save and stop\n", name, l.PID)
	p.note("to wait for its end, run `ddpbatch wait %s`; to kill it immediately, run `ddpbatch cancel %s` again", path, path)
	return nil
}
