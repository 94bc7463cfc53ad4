package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/listeners"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/process"
	"github.com/ddpbatch/ddpbatch/jobs/trainlog"
)

// readyInterval is the interval between two checks whether a component is ready.
const readyInterval = 100 * time.Millisecond

// A readyCheck returns nil if a component is ready, and otherwise the unmet condition.
type readyCheck func() error

// awaitReady waits until the newest process of the component is ready. It returns an error if the
// process ends before, if another process has the port, or after ready_timeout.
func (p *component) awaitReady(ctx context.Context) error {
	if p.spec.Ready == jobs.ReadyNone {
		return nil
	}
	q := p.current
	check := p.readyCheck()
	limit := time.After(time.Duration(p.spec.ReadyTimeout))
	for {
		missing := check()
		if missing == nil {
			return nil
		}
		select {
		case <-q.ended:
			if p.endsForStop() {
				return cmp.Or(context.Cause(p.c.r.Session.Context()), errStopRequested)
			}
			err := p.describeEnd("before it was ready")
			p.end(true)          // so that all of its output is in the file
			if p.restarts == 0 { // connections of an earlier process may still use the port
				err = q.guard.explain(err)
			}
			return p.wrap(err)
		case <-q.guard.takenDuringWatch():
			return q.guard.foundTaken()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.c.r.Session.Context().Done():
			return context.Cause(p.c.r.Session.Context())
		case <-limit:
			p.end(true)
			return p.wrap(hints.Errorf(p.readyHint(), "%s was not ready within %s: %w", p, time.Duration(p.spec.ReadyTimeout), missing))
		case <-time.After(readyInterval):
		}
	}
}

// readyHint returns the fix for a component that does not become ready.
func (p *component) readyHint() string {
	switch p.spec.Ready {
	case jobs.ReadyFile:
		return "make the component create the file {ready_file}, which DDPBATCH_READY_FILE also names, or increase ready_timeout"
	case jobs.ReadyLog:
		return "check ready_pattern, or increase ready_timeout"
	}
	return "make the component listen on {host} and {port}, which DDPBATCH_COMPONENT_HOST and DDPBATCH_COMPONENT_PORT also name, or increase ready_timeout"
}

// readyCheck returns the check for the newest process.
func (p *component) readyCheck() readyCheck {
	q, dir := p.current, p.c.r.dir
	switch p.spec.Ready {
	case jobs.ReadyFile:
		return func() error {
			info, err := dir.StatPath(q.ready)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("it has not created %q", q.ready)
			case err != nil:
				return err
			case !info.Mode().IsRegular():
				return fmt.Errorf("%q is not a regular file", q.ready)
			}
			return safefile.CheckOwner(info)
		}
	case jobs.ReadyLog:
		pattern := regexp.MustCompile(string(p.spec.ReadyPattern)) // checked with the job file
		lines := trainlog.Follow(opener(dir, filepath.Join(dir.RankOutput(p.attempt), output.Parts(q.base)[0])), 0)
		found := false
		return func() error {
			err := lines.Read(func(line string) { found = found || pattern.MatchString(line) })
			if found {
				return nil
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return fmt.Errorf("it has printed no line that matches %q", p.spec.ReadyPattern)
		}
	}
	return p.checkListens
}

// checkListens returns nil if a process of the component listens on its port. A listener of a
// different user, or of a different program of this user, does not count.
func (p *component) checkListens() error {
	found, err := listeners.On(p.at.Port)
	if err != nil {
		return err
	}
	reason := fmt.Errorf("it does not listen on %s", p.at)
	for _, l := range found {
		switch {
		case l.UID != os.Geteuid():
			reason = fmt.Errorf("%s", describeListener(l))
		case !l.Accepts(p.at.addr()):
			reason = fmt.Errorf("it listens on %s only, and not on %s", l.Addr, p.at)
		case !p.holdsSocket(l.Inode):
			reason = fmt.Errorf("a different program of this user listens on %s", l.Addr)
		default:
			return nil
		}
	}
	return reason
}

// holdsSocket reports whether a process of the component has a socket open. If the files of one of
// its processes cannot be read, the owner of the socket must suffice.
func (p *component) holdsSocket(inode uint64) bool {
	unknown := false
	holds := func(pid int) bool {
		found, readable := process.HasSocket(pid, inode)
		unknown = unknown || !readable
		return found
	}
	var any func(tree *userProcess) bool
	any = func(tree *userProcess) bool {
		found := holds(tree.PID)
		for _, child := range tree.children {
			found = found || any(child)
		}
		return found
	}
	program, orphans := findProcesses(p.current.cmd.Process.Pid, p.current.group)
	if program != nil && any(program) {
		return true
	}
	for _, o := range orphans {
		if any(o) {
			return true
		}
	}
	// A daemon has left the tree, but still has the variables of the component.
	run, _ := environ.Lookup(p.environ, process.RunVariable)
	for _, pid := range process.OfComponent(run, string(p.spec.Name)) {
		if holds(pid) {
			return true
		}
	}
	return unknown
}
