package launch

import (
	"os"
	"syscall"
	"time"
)

// receivedStop reports whether a program that has ended was stopped by a signal that Slurm
// sent to this process as well: the end of the program may be noticed first. It does not
// wait if the attempt is aborted.
func receivedStop(state *os.ProcessState, signals <-chan os.Signal, aborted, done <-chan struct{}) (s os.Signal, ok bool) {
	status := state.Sys().(syscall.WaitStatus)
	delay := signalDelay
	switch {
	case status == 0:
		return nil, false
	case endedByStop(status):
		delay = stopSignalDelay
	}
	select {
	case s = <-signals:
		return s, true
	case <-aborted:
		return nil, false
	case <-done:
		return nil, false
	case <-time.After(delay):
		return nil, false
	}
}

const (
	// signalDelay is how much later than its program this process may receive a signal.
	signalDelay = 100 * time.Millisecond
	// stopSignalDelay is the same for a program that a stop signal seems to have ended:
	// slurmstepd signals the processes one after another, and the node may be busy.
	stopSignalDelay = 5 * time.Second
	// settleTimeout is how long the exit codes of workers are waited for after their end.
	settleTimeout = 5 * time.Second
	// minOrphanTimeout bounds the wait for processes that handle the stop signal and
	// outlive their wrapper. Some never end, such as a monitor in the background.
	minOrphanTimeout = 2 * time.Minute
)

// exitCode returns the exit code of a process, as a shell reports it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// endedByStop reports whether a stop signal has ended a process that does not handle it, or
// the command of a wrapper.
func endedByStop(status syscall.WaitStatus) bool {
	code := exitCode(status)
	return code == 128+int(syscall.SIGUSR1) || code == 128+int(syscall.SIGTERM)
}
