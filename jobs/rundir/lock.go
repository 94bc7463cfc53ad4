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
)

// holder is who has a lock, as its file says.
type holder struct {
	PID  int       `json:"pid"`
	Host string    `json:"host"`
	Time time.Time `json:"time"`
}

// Lock takes the lock of the launcher, which is held as long as ranks run; the
// kernel frees it when the process ends, however that happens. While another
// process has it, the error says which and where.
//
// On a file system that has no locks (Lustre mounted without the option flock)
// nothing is locked and there is no error.
func (d Dir) Lock() (unlock func(), err error) {
	return d.lock(launchLockName, "a launcher is at work there already",
		"stop it first, or give this run a directory of its own with --run-dir")
}

// LockSubmission takes the lock of a submission, which is held from the look at
// the record until the job's id stands in it.
func (d Dir) LockSubmission() (unlock func(), err error) {
	return d.lock(submitLockName, "another submission is under way there",
		"see what it did with `ddpbatch status`")
}

func (d Dir) lock(name, taken, hint string) (unlock func(), err error) {
	path := filepath.Join(d.Path, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run directory: %w", err)
	}
	switch err := flock(f); {
	case errors.Is(err, unix.EWOULDBLOCK):
		defer f.Close()
		return nil, fmt.Errorf("run directory %q: %w", d.Path, refuse(hint, "%s%s", taken, heldBy(f)))
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK):
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	// Who holds it is for people; the lock holds without it.
	_ = writeHolder(f)
	// The file stays: removing it would let two processes lock two files of one
	// name.
	return func() {
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

func writeHolder(f *os.File) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	text, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Time: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return err
}

// heldBy names the holder, unless it is just writing its name.
func heldBy(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	var h holder
	if err != nil || json.Unmarshal(text, &h) != nil {
		return ""
	}
	return fmt.Sprintf(": process %d on host %q, since %s", h.PID, h.Host, h.Time.Format(time.RFC3339))
}
