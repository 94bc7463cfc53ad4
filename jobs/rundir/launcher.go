package rundir

import (
	"bytes"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// Launcher is a launcher without Slurm that has taken the lock of the launcher and has
// not given it back. It may have been killed since.
type Launcher struct {
	PID   int
	Host  string
	Since time.Time // when it took the lock, in whole seconds

	place place
	start uint64 // of the process, in clock ticks since the host was booted
}

// Launcher returns the launcher without Slurm that holds the lock of the launcher; false
// if none does. The processes of a job, of a submission, and ranks without a launcher
// also take this lock, and are not returned.
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

// place is where the number of a process has its meaning. Hosts and containers may have
// equal names. Locks of earlier versions do not have it.
type place struct {
	Boot      string `json:"boot,omitempty"`          // the kernel's boot_id
	Namespace string `json:"pid_namespace,omitempty"` // as "pid:[4026531836]"
}

// thisPlace returns the place of this process. What cannot be read is left empty.
func thisPlace() (p place) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	p.Boot = string(bytes.TrimSpace(boot))
	p.Namespace, _ = os.Readlink("/proc/self/ns/pid")
	return p
}

// contradicts reports whether two places are known to differ.
func (p place) contradicts(q place) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(p.Boot, q.Boot) || differ(p.Namespace, q.Namespace)
}

// IsHere reports whether the launcher was started on this host, since it was booted, and
// in this process's PID namespace.
func (l Launcher) IsHere() bool {
	host, err := os.Hostname()
	return err == nil && host == l.Host && !l.place.contradicts(thisPlace())
}

// IsRunning reports whether the process of the launcher still exists. It must have been
// started on this host. Another process with the same number is not the launcher.
func (l Launcher) IsRunning() bool {
	start, err := processStart(l.PID)
	return err == nil && start == l.start
}

// ErrNotRunning is the error of a signal to a launcher that has ended.
var ErrNotRunning = errors.New("the launcher has ended")

// Signal sends a signal to the launcher, which must be on this host, and to no other
// process, even if the launcher ends at this moment and its number is used again.
func (l Launcher) Signal(s unix.Signal) error {
	err := process.Signal(l.PID, l.start, s)
	if errors.Is(err, process.ErrEnded) {
		return ErrNotRunning
	}
	return err
}

// processStart returns when a process was started, in clock ticks since the host was
// booted. It fails for a process that does not exist, and for a zombie, which has ended.
func processStart(pid int) (uint64, error) {
	s, err := process.Read(pid)
	if err == nil && s.Ended {
		err = ErrNotRunning
	}
	return s.Start, err
}
