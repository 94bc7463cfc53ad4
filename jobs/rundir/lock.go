package rundir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// A holder is the content of a lock file: the process that holds the lock. A release empties the
// file. The content remains if the process is killed.
type holder struct {
	Job  string    `json:"job,omitempty"` // Slurm job ID
	PID  int       `json:"pid"`
	Host string    `json:"host"`
	Time time.Time `json:"time"`

	// Launcher reports whether the process is a launcher, which stops on a signal.
	Launcher bool   `json:"launcher,omitempty"`
	Start    uint64 `json:"start,omitempty"` // start time of the process; see processStart

	place
}

// A Claim describes the process that requests the launcher lock.
type Claim struct {
	// Job is the ID of the process's Slurm job; empty outside Slurm.
	Job string
	// Ended queries Slurm whether a job has ended; nil without Slurm.
	Ended func(job string) (bool, error)
	// Launcher reports whether this process is a launcher; see [Dir.Launcher].
	Launcher bool
}

// Lock takes the launcher lock. The caller holds it while ranks run. The kernel releases it
// when the process ends for any reason. If another process holds the lock, the error names the
// process and its host.
//
// On some file systems, each node has separate locks or no locks, for example on Lustre mounted
// with localflock or without flock. Lock then relies on the content of the lock file. A holder on
// another node, or in another container, keeps the lock until Slurm reports the end of its job. If
// it has no job, or Slurm does not respond, only the file system decides: most file systems lock
// across nodes, and a job must start after its launcher was killed although the controller is down.
// On a file system with separate locks, a second launcher can then start. A holder on this node
// keeps the lock while its process exists.
func (d Dir) Lock(c Claim) (unlock func(), err error) {
	return d.lock(c, launchLockName, errors.New("a launcher is already running there"),
		"stop it first, or give this run a directory of its own with --run-dir")
}

// LockSubmission takes the submission lock. The caller holds it from its first read of the
// record until it has stored the job ID in the record.
func (d Dir) LockSubmission() (unlock func(), err error) {
	return d.lock(Claim{}, submitLockName, errSubmitting, "see what it did with `ddpbatch status`")
}

var errSubmitting = errors.New("another submission is in progress")

// WaitLockSubmission takes the submission lock. If another process holds the lock, it tries again for up
// to the given time.
func (d Dir) WaitLockSubmission(ctx context.Context, timeout time.Duration) (unlock func(), err error) {
	for end := time.Now().Add(timeout); ; {
		if unlock, err = d.LockSubmission(); !errors.Is(err, errSubmitting) || time.Now().After(end) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

func (d Dir) lock(c Claim, name string, taken error, hint string) (unlock func(), err error) {
	path := filepath.Join(d.Path, name)
	f, err := d.openToWrite(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("lock run directory: %w", err)
	}
	if err := checkLockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %q: %w", path, hints.Errorf("remove the file if no launcher or submission uses the directory", "%w", err))
	}
	locked := false
	switch err := flock(f); {
	case err == nil:
		locked = true
	case errors.Is(err, unix.EWOULDBLOCK):
		defer f.Close()
		h, _ := readHolder(f)
		return nil, fmt.Errorf("run directory %q: %w", d.Path, hints.Errorf(hint, "%w%s", taken, h))
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK):
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	if h, ok := readHolder(f); ok && !c.over(h, locked) {
		f.Close()
		hint += fmt.Sprintf("; if it is surely gone, remove %q", path)
		return nil, fmt.Errorf("run directory %q: %w", d.Path, hints.Errorf(hint, "%w%s", taken, h))
	}
	// Ignore the error: if the file system locks across nodes, the lock does not need it.
	_ = writeHolder(f, c)
	// Do not remove the file: two processes could then lock two files with the same name.
	return func() {
		_ = f.Truncate(0)
		// Close is not sufficient: a child process that is just starting may still have the
		// file descriptor.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		f.Close()
	}, nil
}

// checkLockFile returns an error if the lock file belongs to another user or has a second name,
// because a lock overwrites its content. A copy with `cp -al` shares the file with the original.
func checkLockFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := safefile.CheckOwner(info); err != nil {
		return fmt.Errorf("it %w", err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink > 1 {
		return fmt.Errorf("it has %d names (hard links)", s.Nlink)
	}
	return nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return err
		}
	}
}

// over reports whether h no longer runs, although it did not release the lock. locked reports
// whether the file system granted the lock.
func (c Claim) over(h holder, locked bool) bool {
	host, err := os.Hostname()
	here := err == nil && h.Host == host
	switch current := thisPlace(); {
	case here && locked: // locked is reliable on this host
	case here && current.contradicts(place{Boot: h.Boot}): // the host has restarted since then
		return true
	case here && !current.contradicts(h.place): // otherwise its PID is not valid here
		return !h.isRunning()
	case h.Job == "":
	case h.Job == c.Job: // earlier launcher of this job: Slurm runs one at a time
		return true
	case c.Ended != nil:
		if ended, err := c.Ended(h.Job); err == nil {
			return ended
		}
	}
	return locked
}

// isRunning reports whether the process of the holder still exists. The PID must be valid in this
// process. The start time distinguishes the process from a later one with the same PID.
func (h holder) isRunning() bool {
	if errors.Is(unix.Kill(h.PID, 0), unix.ESRCH) {
		return false
	}
	start, err := processStart(h.PID)
	return !errors.Is(err, ErrNotRunning) && (err != nil || h.Start == 0 || start == h.Start)
}

func writeHolder(f *os.File, c Claim) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	h := holder{Job: c.Job, PID: os.Getpid(), Host: host, Time: time.Now().UTC().Truncate(time.Second), Launcher: c.Launcher, place: thisPlace()}
	if h.Start, err = processStart(h.PID); err != nil {
		h.Launcher = false // another process with this PID would be indistinguishable
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return err
}

// readHolder returns the holder of the lock. It returns false if the file is empty or a
// process is just writing it.
func readHolder(f *os.File) (h holder, ok bool) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID <= 0 {
		return holder{}, false
	}
	return h, true
}

// String returns the job, process, and host of the holder, as the end of a message.
func (h holder) String() string {
	if h.PID == 0 {
		return ""
	}
	job := ""
	if h.Job != "" {
		job = fmt.Sprintf("job %s, ", h.Job)
	}
	return fmt.Sprintf(": %sprocess %d on host %q, since %s", job, h.PID, h.Host, h.Time.Format(time.RFC3339))
}
