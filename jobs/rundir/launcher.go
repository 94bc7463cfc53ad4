package rundir

import (
	"bytes"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// A Launcher is a launcher outside Slurm that took the launcher lock and did not release it.
// Its process may have been killed since then.
type Launcher struct {
	PID   int
	Host  string
	Since time.Time // time when it took the lock, rounded down to seconds

	place place
	start uint64 // start time of the process, in clock ticks since boot
}

// Launcher returns the launcher outside Slurm that took the launcher lock and did not release it. It
// returns false if there is no such launcher. Other processes also acquire this lock: processes of
// Slurm jobs, submissions, and ranks without a launcher. Launcher does not return these.
func (d Dir) Launcher() (Launcher, bool) {
	f, err := d.openFile(launchLockName)
	if err != nil {
		return Launcher{}, false
	}
	defer f.Close()
	h, ok := readHolder(f)
	if !ok || !h.Launcher || h.Job != "" {
		return Launcher{}, false
	}
	return Launcher{PID: h.PID, Host: h.Host, Since: h.Time, place: h.place, start: h.Start}, true
}

// IsLaunched reports whether `ddpbatch launch` without Slurm started a run most recently, rather than a
// Slurm job.
func (d Dir) IsLaunched(r Record) bool {
	var last time.Time // latest evidence of a launch
	if l, ok := d.Launcher(); ok {
		last = l.Since
	}
	if end, ok := d.ReadEnd(); ok && end.JobID == "" && end.Time.After(last) {
		last = end.Time
	}
	if live, ok := d.ReadLive(); ok && live.JobID == "" && live.Time.After(last) {
		last = live.Time
	}
	submission := r.Last()
	return !last.IsZero() && (submission == nil || last.Truncate(time.Second).After(submission.Time))
}

// A place identifies the kernel and the PID namespace in which a PID is valid. Host names are
// not sufficient, because hosts and containers may share one. Lock files of earlier versions
// do not contain these fields.
type place struct {
	Boot      string `json:"boot,omitempty"`          // the kernel's boot_id
	Namespace string `json:"pid_namespace,omitempty"` // such as "pid:[4026531836]"
}

// thisPlace returns the place of this process. Values that it cannot read are empty.
func thisPlace() (p place) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	p.Boot = string(bytes.TrimSpace(boot))
	p.Namespace, _ = os.Readlink("/proc/self/ns/pid")
	return p
}

// contradicts reports whether p and q differ in a field that both have.
func (p place) contradicts(q place) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(p.Boot, q.Boot) || differ(p.Namespace, q.Namespace)
}

// IsHere reports whether the launcher was started on this host, since the last boot, and in
// the PID namespace of this process.
func (l Launcher) IsHere() bool {
	host, err := os.Hostname()
	return err == nil && host == l.Host && !l.place.contradicts(thisPlace())
}

// IsRunning reports whether the launcher's process still exists. The launcher must be on this
// host. The start time distinguishes it from a later process with the same PID.
func (l Launcher) IsRunning() bool {
	start, err := processStart(l.PID)
	return err == nil && start == l.start
}

// ErrNotRunning means that the launcher has exited.
var ErrNotRunning = errors.New("the launcher has ended")

// Signal sends s to the launcher, which must be on this host, see [process.Signal]. It returns
// [ErrNotRunning] if the launcher has exited.
func (l Launcher) Signal(s unix.Signal) error {
	err := process.Signal(l.PID, l.start, s)
	if errors.Is(err, process.ErrEnded) {
		return ErrNotRunning
	}
	return err
}

// processStart returns the start time of a process, in clock ticks since boot. It returns an
// error if the process does not exist or is a zombie.
func processStart(pid int) (uint64, error) {
	s, err := process.Read(pid)
	if err == nil && s.Ended {
		err = ErrNotRunning
	}
	return s.Start, err
}
