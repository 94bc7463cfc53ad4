package launch

import (
	"os"
	"syscall"
	"time"
)

// receivedStop reports whether a signal stopped a program that has ended, and Slurm sent that
// signal to this process as well. This process may notice the end of the program before the
// signal. So receivedStop waits for the signal for a short time, unless the attempt is
// aborted.
func receivedStop(state *os.ProcessState, signals <-chan os.Signal, aborted, done <-chan struct{}) (s os.Signal, ok bool) {
	status := state.Sys().(syscall.WaitStatus)
	delay := signalDelay
	switch {
	case status == 0:
		return nil, false
	case killedByStopSignal(status):
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
	// signalDelay is how much later than the program this process may receive a signal.
	signalDelay = 100 * time.Millisecond
	// stopSignalDelay is the delay if a stop signal seems to have ended the program.
	// slurmstepd signals the processes one after another, and the node may be busy.
	stopSignalDelay = 5 * time.Second
	// workerCodeTimeout is how long to wait for the exit codes of workers after the program has
	// ended.
	workerCodeTimeout = 5 * time.Second
	// minOrphanTimeout is the minimum time to wait for processes that handle the stop signal
	// and outlive their wrapper. Some never end, such as a monitor in the background.
	minOrphanTimeout = 2 * time.Minute
)

// exitCode returns the exit code of a process, as a shell reports it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// killedByStopSignal reports whether a stop signal has ended a process that does not handle it, or
// the command of a wrapper.
func killedByStopSignal(status syscall.WaitStatus) bool {
	code := exitCode(status)
	return code == 128+int(syscall.SIGUSR1) || code == 128+int(syscall.SIGTERM)
}
