package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

const (
	// launchPollInterval is the interval between checks of a launcher that [Store.Wait] waits for.
	launchPollInterval = 250 * time.Millisecond
	// launcherTimeout is the timeout for a launcher on a different host. A launcher writes
	// live.json every 2 s, but NFS can show an old version for a minute.
	launcherTimeout = 2 * time.Minute
)

// IsLaunched reports whether `ddpbatch launch` without Slurm started the run most recently,
// rather than a Slurm job.
func (r Run) IsLaunched() bool { return r.Dir.IsLaunched(r.Record) }

// A LaunchEnd is the end of a launch without Slurm.
type LaunchEnd struct {
	Exit  int    // the launcher's exit code
	Cause string // reason for a missing exit code; empty if the launcher wrote one
}

// String describes the end as a predicate of the run, such as "has ended: exit code 3".
func (e LaunchEnd) String() string {
	if e.Cause != "" {
		return "has ended: " + e.Cause
	}
	return fmt.Sprintf("has ended: exit code %d", e.Exit)
}

// LaunchEnd returns the end of the last launch. It returns false while the launch is running.
func (r Run) LaunchEnd(now time.Time) (LaunchEnd, bool) {
	l, held := r.Dir.Launcher()
	live, ok := r.Dir.ReadLive()
	isLive := ok && live.JobID == ""
	running, silent := held, false
	switch {
	case !held: // no launcher, or an older version that did not record its PID
		running = isLive && live.Phase != rundir.PhaseOver && now.Sub(live.Time) < launcherTimeout
	case l.IsHere():
		running = l.IsRunning()
	default:
		lastReport := l.Since
		if isLive && live.Time.After(lastReport) {
			lastReport = live.Time
		}
		silent = now.Sub(lastReport) > launcherTimeout
	}
	// Read the result last: the launcher writes it before it releases the lock.
	if end, ok := r.Dir.ReadEnd(); ok && end.JobID == "" && (!held || !end.Time.Before(l.Since)) {
		return LaunchEnd{Exit: end.Exit}, true
	}
	switch {
	case silent:
		return LaunchEnd{exitcode.Failed, fmt.Sprintf("its launcher on host %q wrote nothing for %s", l.Host, launcherTimeout)}, true
	case running:
		return LaunchEnd{}, false
	}
	if _, err := os.Stat(r.Dir.Path); errors.Is(err, fs.ErrNotExist) {
		return LaunchEnd{exitcode.Failed, "its run directory was moved or deleted"}, true
	}
	return LaunchEnd{exitcode.Failed, "its launcher was killed"}, true
}

// waitForLaunch waits until the last launch of the run has ended.
func (r Run) waitForLaunch(ctx context.Context) (LaunchEnd, error) {
	for {
		if end, over := r.LaunchEnd(time.Now()); over {
			return end, nil
		}
		select {
		case <-ctx.Done():
			return LaunchEnd{}, fmt.Errorf("wait for run %s: %w", r.Record.Name, context.Cause(ctx))
		case <-time.After(launchPollInterval):
		}
	}
}

// A CanceledLaunch is the result of [Run.CancelLaunch].
type CanceledLaunch struct {
	End    *LaunchEnd // set if the launch had already ended
	PID    int        // the launcher that was asked to stop
	Killed bool       // the launcher kills its ranks immediately, instead of saving
}

// CancelLaunch asks the launcher of a run to save and stop. A second call makes the launcher
// kill its ranks immediately, like a second Control-C.
func (r Run) CancelLaunch() (CanceledLaunch, error) {
	name := r.Record.Name
	l, ok := r.Dir.Launcher()
	isRemote := ok && !l.IsHere()
	// A launcher on another host may only seem silent, because the file system is slow.
	if end, over := r.LaunchEnd(time.Now()); over && (end.Cause == "" || !isRemote) {
		return CanceledLaunch{End: &end}, nil
	}
	if !ok {
		return CanceledLaunch{}, hints.Errorf("press Control-C in its terminal, or send SIGTERM to its process",
			"cancel run %s: its launcher did not record its process ID", name)
	}
	if isRemote {
		return CanceledLaunch{}, hints.Errorf(fmt.Sprintf("run `ddpbatch cancel %s` on %s", jobs.ShellQuote(r.Dir.Path), l.Host),
			"run %q was launched on host %q as process %d: it can be canceled only there", r.Dir.Path, l.Host, l.PID)
	}
	c := CanceledLaunch{PID: l.PID}
	if live, ok := r.Dir.ReadLive(); ok && live.JobID == "" && !live.Time.Before(l.Since) {
		c.Killed = live.Phase == rundir.PhaseStopping
	}
	sig := unix.SIGTERM
	if c.Killed {
		sig = unix.SIGINT
	}
	switch err := l.Signal(sig); {
	case errors.Is(err, rundir.ErrNotRunning):
		return r.CancelLaunch()
	case err != nil:
		return CanceledLaunch{}, fmt.Errorf("cancel run %s: %w", name, err)
	}
	return c, nil
}
