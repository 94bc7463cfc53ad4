package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// State is the state of a job, in Slurm's words (squeue(1), "JOB STATE CODES").
type State string

// The states that a caller may want to tell apart. Slurm has more, and a newer
// version may have others; they come through as Slurm writes them.
const (
	StateUnknown     State = "UNKNOWN" // Slurm does not tell: not a verdict on the job
	StatePending     State = "PENDING"
	StateConfiguring State = "CONFIGURING"
	StateRunning     State = "RUNNING"
	StateSuspended   State = "SUSPENDED"
	StateCompleting  State = "COMPLETING"
	StateRequeued    State = "REQUEUED"
	StateRequeueHold State = "REQUEUE_HOLD"

	StateCompleted   State = "COMPLETED"
	StateFailed      State = "FAILED"
	StateCancelled   State = "CANCELLED"
	StateTimeout     State = "TIMEOUT"
	StatePreempted   State = "PREEMPTED"
	StateNodeFail    State = "NODE_FAIL"
	StateBootFail    State = "BOOT_FAIL"
	StateDeadline    State = "DEADLINE"
	StateOutOfMemory State = "OUT_OF_MEMORY"
	StateRevoked     State = "REVOKED"
)

// Done says whether the job has ended for good. A preempted job that Slurm
// requeues is pending again; one that shows as PREEMPTED has ended.
func (s State) Done() bool {
	switch s {
	case StateCompleted, StateFailed, StateCancelled, StateTimeout, StatePreempted,
		StateNodeFail, StateBootFail, StateDeadline, StateOutOfMemory, StateRevoked:
		return true
	}
	return false
}

// JobState is what Slurm tells about a job. A field that it does not tell is
// empty.
type JobState struct {
	ID         string // as it was asked for: "18", or "18_3"
	ArrayJobID string // of an array or its element; empty otherwise
	ArrayTask  string // index of an array's element

	Name     string
	State    State
	Reason   string // why it is pending or has ended, in Slurm's words; of an array, how many elements are in which state
	ExitCode string // "code:signal" of the batch script; only once it is done
	Nodes    string // a host list
	Elapsed  string // "[days-]hours:minutes:seconds", as Slurm writes it
	Start    string // local time of the cluster; expected while pending
	End      string // local time of the cluster; expected until it is done
	Restarts int    // how often Slurm has requeued it; -1 while that is not known
}

// Done says whether the job has ended for good.
func (j JobState) Done() bool { return j.State.Done() }

// Succeeded says whether the job has ended well.
func (j JobState) Succeeded() bool { return j.State == StateCompleted }

// parseState reads a state as squeue or sacct print it. sacct adds to
// it: "CANCELLED by 1000", or a "+" where a column was too narrow.
func parseState(s string) State {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'A' || c > 'Z') {
			s = s[:i]
			break
		}
	}
	if s == "" {
		return StateUnknown
	}
	return State(s)
}

// ExitText returns an exit code as Slurm writes it, "code:signal", as text. Slurm also has
// numbers there that are no signals, such as 53 for a file that it could not open; these
// stay as they are.
func ExitText(exitCode string) string {
	code, signal, _ := strings.Cut(exitCode, ":")
	number, err := strconv.Atoi(signal)
	switch name := unix.SignalName(syscall.Signal(number)); {
	case err == nil && number == 0:
		return "exit code " + code
	case err == nil && name != "":
		return fmt.Sprintf("killed by signal %d (%s)", number, name)
	}
	return "exit code " + exitCode
}
