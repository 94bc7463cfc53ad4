package launch

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// stopSignalOf returns the signal in command.stop_signal. It returns 0 if the key is not set.
func stopSignalOf(c *jobs.Command) syscall.Signal {
	if c == nil || c.StopSignal == "" {
		return 0
	}
	return unix.SignalNum("SIG" + string(c.StopSignal))
}

// signalsToHandle names the stop signals of a program for messages.
func signalsToHandle(j *jobs.Job) string {
	if s := stopSignalOf(j.Command); s != 0 {
		return unix.SignalName(s)
	}
	return "SIGUSR1 and SIGTERM"
}

// stopCodes are the exit codes of a program that was asked to stop: complete (0), stopped
// (ddpbatch's own code, or one of command.stop_codes), or killed by a stop signal. Any other
// code is a failure, and would probably occur again. The zero value is valid for a job without
// these keys.
type stopCodes struct {
	signal  syscall.Signal // in command.stop_signal; 0 if it is not set
	stopped []int          // command.stop_codes
}

func stopCodesOf(j *jobs.Job) stopCodes {
	if j.Command == nil {
		return stopCodes{}
	}
	return stopCodes{stopSignalOf(j.Command), j.Command.StopCodes}
}

// has reports whether code is the exit code of a program that has stopped on request.
func (s stopCodes) has(code int) bool {
	return code == 0 || code == exitStopped || s.isSignal(code) || slices.Contains(s.stopped, code)
}

// isSignal reports whether code is the exit code of a process that a stop signal has ended: a
// process that does not handle the signal, or the command of a wrapper.
func (s stopCodes) isSignal(code int) bool {
	return isStopCode(code) || s.signal != 0 && code == 128+int(s.signal)
}

// isStopCode reports whether code is the exit code of a process that SIGUSR1 or SIGTERM has
// ended. Slurm sends these signals itself.
func isStopCode(code int) bool {
	return code == 128+int(syscall.SIGUSR1) || code == 128+int(syscall.SIGTERM)
}

// normalize returns ddpbatch's own code for the codes in command.stop_codes, and all other codes
// unchanged.
func (s stopCodes) normalize(code int) int {
	if slices.Contains(s.stopped, code) {
		return exitStopped
	}
	return code
}

// combine combines the exit codes of processes that were asked to stop: 3 if one of them ended
// with it, or else the largest. It reports false if one of them is the code of a failure.
func (s stopCodes) combine(codes []int) (code int, stopped bool) {
	for _, c := range codes {
		if !s.has(c) {
			return 0, false
		}
		if code != exitStopped && (c == exitStopped || c > code) {
			code = c
		}
	}
	return code, true
}

// A graceError reports that a program did not end in time after a stop request.
type graceError struct {
	name   string
	signal syscall.Signal
	grace  jobs.Duration
}

func (e *graceError) Error() string {
	return fmt.Sprintf("%s did not end within %s after %s, and was killed", e.name, e.grace, unix.SignalName(e.signal))
}

// Hint returns the fix.
func (e *graceError) Hint() string {
	return fmt.Sprintf("increase command.stop_grace, or make the program save and exit faster when it receives %s", unix.SignalName(e.signal))
}

// killProcesses kills a program, its descendants, and the processes of its group. The program must be a
// child of this process: if it has ended, another process may have its PID.
func killProcesses(pid, group int) {
	program, _ := findProcesses(pid, group)
	var kill func(p *userProcess)
	kill = func(p *userProcess) {
		for _, c := range p.children {
			kill(c)
		}
		p.signal(syscall.SIGKILL)
	}
	if program != nil && program.Parent == os.Getpid() {
		kill(program)
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}
