//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The marker file lists the init process of every machine, one "pid start-time" per line. The
// kernel kills these processes when the process that started the cluster dies. The list covers the
// time until they have exited, and a machine whose init process was stopped by a signal.

// tempPrefix is the prefix of the temporary directories of clusters.
const tempPrefix = "ddpbatch-cluster-"

// sweep removes the temporary directories of clusters whose process was killed, and kills the
// processes that still run in them. A later sweep tries again if the removal fails.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*")) // the pattern is valid
	for _, dir := range dirs {
		// A directory of another user could list any process to kill.
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
			continue
		}
		marker, err := os.Stat(layout(dir).marker())
		if err != nil || time.Since(marker.ModTime()) < time.Minute { // a new cluster may not have its lock yet
			continue
		}
		if lock, err := layout(dir).claim(); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}

// record appends a machine's init process to the list.
func record(lock *os.File, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(lock, "%d %s\n", pid, start)
	return err
}

// endLeftovers kills every listed process that still runs, waits until its process namespace is
// empty, and clears the list.
func endLeftovers(lock *os.File) error {
	text, err := io.ReadAll(lock)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var pid int
		var start string
		if n, _ := fmt.Sscan(line, &pid, &start); n != 2 {
			continue // an incomplete line: its writer died before the machine ran anything
		}
		if err := endLeftover(pid, start); err != nil {
			return err
		}
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.Seek(0, io.SeekStart)
	return err
}

func endLeftover(pid int, start string) error {
	const timeout = 2 * time.Minute // a process may wait for a slow disk
	deadline := time.Now().Add(timeout)
	for {
		// The start time distinguishes the process from a later process with the same ID. An init
		// process is gone only after all other processes of its namespace.
		if now, err := startTime(pid); err != nil || now != start {
			return nil
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d of an earlier test cluster: %w", pid, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end process %d of an earlier test cluster: still there %v after a kill", pid, timeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startTime returns the start time of a process in the kernel's clock ticks. It returns an error if
// the process does not exist or is a zombie.
func startTime(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	state, start, err := parseStat(string(text))
	if err != nil {
		return "", fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	if state == "Z" || state == "X" {
		return "", os.ErrProcessDone
	}
	return start, nil
}

// parseStat returns fields 3 and 22 of /proc/PID/stat (proc(5)).
func parseStat(text string) (state, start string, err error) {
	// The second field is the command in parentheses, which may contain any character. Count the
	// fields from the last parenthesis.
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 20 {
		return "", "", fmt.Errorf("%d fields after the command's name: need 20", len(f))
	}
	return f[0], f[19], nil
}
