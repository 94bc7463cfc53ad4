package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Launcher is a launcher without Slurm that has taken the lock of the launcher and has
// not given it back. It may have been killed since.
type Launcher struct {
	PID   int
	Host  string
	Since time.Time // when it took the lock, in whole seconds

	start uint64 // of the process, in clock ticks since the host was booted
}

// Launcher returns the launcher without Slurm that holds the lock of the launcher; false
// if none does. The processes of a job, of a submission, and ranks without a launcher
// also take this lock, and are not returned.
func (d Dir) Launcher() (Launcher, bool) {
	f, err := os.OpenFile(filepath.Join(d.Path, launchLockName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Launcher{}, false
	}
	defer f.Close()
	h, ok := readHolder(f)
	if !ok || !h.Launcher || h.Job != "" {
		return Launcher{}, false
	}
	return Launcher{h.PID, h.Host, h.Time, h.Start}, true
}

// IsHere reports whether the launcher was started on this host.
func (l Launcher) IsHere() bool {
	host, err := os.Hostname()
	return err == nil && host == l.Host
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
	fd, err := unix.PidfdOpen(l.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return ErrNotRunning
	case errors.Is(err, unix.ENOSYS): // Linux before 5.3
		fd = -1
	case err != nil:
		return fmt.Errorf("find process %d: %w", l.PID, err)
	default:
		defer unix.Close(fd)
	}
	if !l.IsRunning() {
		return ErrNotRunning
	}
	if fd < 0 {
		err = unix.Kill(l.PID, s)
	} else {
		err = unix.PidfdSendSignal(fd, s, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", l.PID, err)
	}
	return nil
}

// processStart returns when a process was started, in clock ticks since the host was
// booted: field 22 of proc(5)'s stat. It fails for a process that does not exist, and
// for a zombie, which has ended.
func processStart(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if state := fields[0]; state[0] == 'Z' || state[0] == 'X' {
		return 0, ErrNotRunning
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
