// Package process identifies processes of this host through /proc, finds the ranks to which they
// belong, and signals them. It identifies a process by its PID and its start time, because the
// kernel reuses PIDs. The package does not start processes, and does not wait for them.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Stat is the state of a process from /proc/PID/stat (proc(5)).
type Stat struct {
	PID, Parent, Group int

	Start  uint64             // clock ticks since boot; identifies the process together with PID
	CPU    uint64             // clock ticks of the process, and of the children that it has waited for
	Ended  bool               // reports a zombie: the parent has not waited for it yet
	Status syscall.WaitStatus // valid for a process that has ended
}

// ErrEnded is the error of [Signal] for a process that has ended.
var ErrEnded = errors.New("the process has ended")

// Read returns the state of a process.
func Read(pid int) (Stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, err
	}
	return Parse(text)
}

// IDs returns the IDs of all processes.
func IDs() (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// All returns the states of all processes.
func All() (all []Stat, err error) {
	pids, err := IDs()
	for _, pid := range pids {
		if s, err := Read(pid); err == nil { // otherwise, the process has ended
			all = append(all, s)
		}
	}
	return all, err
}

// Parse parses the content of /proc/PID/stat.
func Parse(text []byte) (s Stat, err error) {
	// The name of the command is in parentheses and may contain any character.
	head, rest, _ := bytes.Cut(text, []byte(" ("))
	f := bytes.Fields(rest[bytes.LastIndexByte(rest, ')')+1:])
	if len(f) < 50 {
		return Stat{}, fmt.Errorf("/proc/PID/stat has only %d fields after the name", len(f))
	}
	number := func(field []byte, bits int) uint64 {
		n, e := strconv.ParseUint(string(field), 10, bits)
		err = errors.Join(err, e)
		return n
	}
	s = Stat{PID: int(number(head, 31)), Parent: int(number(f[1], 31)), Group: int(number(f[2], 31)), Start: number(f[19], 64)}
	for _, field := range f[11:15] { // utime, stime, cutime, cstime
		s.CPU += number(field, 63)
	}
	s.Ended = f[0][0] == 'Z' || f[0][0] == 'X'
	s.Status = syscall.WaitStatus(number(f[49], 32))
	return s, err
}

// Signal sends a signal to the process with the given PID and start time. It returns ErrEnded if the
// process has ended or cannot be read. It does not signal a later process with the same PID, except in
// a short race on Linux before 5.3, which lacks pidfd_open(2).
func Signal(pid int, start uint64, s syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return ErrEnded
	case errors.Is(err, unix.ENOSYS): // Linux before 5.3
		fd = -1
	case err != nil:
		return fmt.Errorf("find process %d: %w", pid, err)
	default:
		defer unix.Close(fd)
	}
	if now, err := Read(pid); err != nil || now.Ended || now.Start != start {
		return ErrEnded
	}
	if fd < 0 {
		err = unix.Kill(pid, s)
	} else {
		err = unix.PidfdSendSignal(fd, s, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return ErrEnded
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// HasSocket reports whether a process has the socket with an inode open. readable is false if the
// kernel does not show the files of the process to this user.
func HasSocket(pid int, inode uint64) (found, readable bool) {
	link := fmt.Sprintf("socket:[%d]", inode)
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, !errors.Is(err, fs.ErrPermission)
	}
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && to == link {
			return true, true
		}
	}
	return false, true
}
