package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// holder is who has a lock, as its file says. The file is empty when no one has it.
type holder struct {
	Job  string    `json:"job,omitempty"` // Slurm's id
	PID  int       `json:"pid"`
	Host string    `json:"host"`
	Time time.Time `json:"time"`

	// Launcher says that the process is a launcher, which a signal asks to stop.
	Launcher bool   `json:"launcher,omitempty"`
	Start    uint64 `json:"start,omitempty"` // of the process, see processStart

	place
}

// Claim is who asks for the lock of the launcher.
type Claim struct {
	// Job is the id of the Slurm job that it is in; empty outside.
	Job string
	// Ended asks Slurm whether a job is over; nil where there is none to ask.
	Ended func(job string) (bool, error)
	// Launcher says that this process is a launcher; see [Dir.Launcher].
	Launcher bool
}

// Lock takes the lock of the launcher, which is held as long as ranks run; the
// kernel frees it when the process ends, however that happens. While another
// process has it, the error says which and where.
//
// Where each node keeps locks of its own, or none (Lustre mounted with localflock or
// without flock), a launcher on another node holds the lock by what it has written into
// the file: until Slurm says that its job has ended. On this node it holds it as long as
// there is its process.
func (d Dir) Lock(c Claim) (unlock func(), err error) {
	return d.lock(c, launchLockName, "a launcher is at work there already",
		"stop it first, or give this run a directory of its own with --run-dir")
}

// LockSubmission takes the lock of a submission, which is held from the look at
// the record until the job's id stands in it.
func (d Dir) LockSubmission() (unlock func(), err error) {
	return d.lock(Claim{}, submitLockName, "another submission is under way there",
		"see what it did with `ddpbatch status`")
}

func (d Dir) lock(c Claim, name, taken, hint string) (unlock func(), err error) {
	path := filepath.Join(d.Path, name)
	f, err := d.openToWrite(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("lock run directory: %w", err)
	}
	locked := false
	switch err := flock(f); {
	case err == nil:
		locked = true
	case errors.Is(err, unix.EWOULDBLOCK):
		defer f.Close()
		h, _ := readHolder(f)
		return nil, fmt.Errorf("run directory %q: %w", d.Path, hints.Errorf(hint, "%s%s", taken, h))
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK):
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	if h, ok := readHolder(f); ok && !c.over(h, locked) {
		f.Close()
		hint += fmt.Sprintf("; if it is surely gone, remove %q", path)
		return nil, fmt.Errorf("run directory %q: %w", d.Path, hints.Errorf(hint, "%s%s", taken, h))
	}
	// Where the file system locks for all nodes, the lock holds without it.
	_ = writeHolder(f, c)
	// The file stays: removing it would let two processes lock two files of one
	// name.
	return func() {
		_ = f.Truncate(0)
		// Closing would not do where a child that is just being started still has it.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		f.Close()
	}, nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return err
		}
	}
}

// over says whether a holder that has not given the lock back is at work no more.
// Locked says that the file system gave the lock away.
func (c Claim) over(h holder, locked bool) bool {
	host, err := os.Hostname()
	switch {
	case err == nil && h.Host == host && !locked:
		return errors.Is(unix.Kill(h.PID, 0), unix.ESRCH)
	case err == nil && h.Host == host: // the kernel knows
	case h.Job == "":
	case h.Job == c.Job: // an earlier attempt: Slurm runs one at a time
		return true
	case c.Ended != nil:
		if ended, err := c.Ended(h.Job); err == nil {
			return ended
		}
	}
	return locked
}

func writeHolder(f *os.File, c Claim) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	h := holder{Job: c.Job, PID: os.Getpid(), Host: host, Time: time.Now().UTC().Truncate(time.Second), Launcher: c.Launcher, place: thisPlace()}
	if h.Start, err = processStart(h.PID); err != nil {
		h.Launcher = false // nobody could tell it from another process
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

// readHolder is who has the lock, unless it is just writing its name.
func readHolder(f *os.File) (h holder, ok bool) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID <= 0 {
		return holder{}, false
	}
	return h, true
}

// String names the holder, for the end of a message.
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
