package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// State is the state of a job as Slurm names it (squeue(1), "JOB STATE CODES").
type State string

// States of jobs. Slurm has others, and newer versions may add some. They keep Slurm's
// names.
const (
	StateUnknown     State = "UNKNOWN" // Slurm has no record of the job; it may be in any state
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

// Done reports whether the state is final. A preempted job that Slurm requeues is pending
// again, so PREEMPTED is final.
func (s State) Done() bool {
	switch s {
	case StateCompleted, StateFailed, StateCancelled, StateTimeout, StatePreempted,
		StateNodeFail, StateBootFail, StateDeadline, StateOutOfMemory, StateRevoked:
		return true
	}
	return false
}

// A JobState describes a job, a job array, or an array task. Fields that Slurm does not
// provide are empty.
type JobState struct {
	ID         string // as requested: "18" or "18_3"
	ArrayJobID string // number of the job array; empty for other jobs
	ArrayTask  string // index of the array task; empty for other jobs

	State    State
	Reason   string // Slurm's reason, for pending and ended jobs; for a job array, the number of tasks in each state
	ExitCode string // "code:signal" of the batch script, if the job is done
	Nodes    string // node list
	Elapsed  string // "[days-]hours:minutes:seconds", as Slurm prints it
	Start    string // local time of the cluster; expected, if the job is pending
	End      string // local time of the cluster; expected, unless the job is done
	Restarts int    // number of requeues; -1 if unknown
}

// Done reports whether the job's state is final.
func (j JobState) Done() bool { return j.State.Done() }

// Succeeded reports whether the job completed without an error.
func (j JobState) Succeeded() bool { return j.State == StateCompleted }

// String returns the state and its reason: "pending (Resources)".
func (j JobState) String() string {
	text := strings.ToLower(string(j.State))
	if j.Reason != "" {
		text += " (" + j.Reason + ")"
	}
	return text
}

// parseState parses a state of squeue or sacct. It cuts what sacct may append: the user in
// "CANCELLED by 1000", or a "+" for a narrow column.
func parseState(s string) State {
	end := strings.IndexFunc(s, func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') })
	if end >= 0 {
		s = s[:end]
	}
	if s == "" {
		return StateUnknown
	}
	return State(s)
}

// FormatExitCode returns the text of an exit code "code:signal". Slurm also uses numbers
// that are not signals, such as 53 for a file that it cannot open. FormatExitCode does not
// interpret them.
func FormatExitCode(exitCode string) string {
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

// A taskGroup is a number of tasks of a job array with the same state.
type taskGroup struct {
	first int // lowest index
	count int
	state *JobState
}

// aggregateStates returns the state of a job array. It is running if a task is running,
// done if all tasks are done, and completed if all tasks are completed. The tasks that
// determine the state also determine the exit code.
func aggregateStates(id string, groups []taskGroup) JobState {
	array := JobState{ID: id, ArrayJobID: id, Restarts: -1}
	counts := make(map[State]int)
	var order []State
	for _, g := range groups {
		j := g.state
		if counts[j.State] == 0 {
			order = append(order, j.State)
		}
		counts[j.State] += g.count
		if statePrecedence(j.State) > statePrecedence(array.State) {
			array.State, array.ExitCode = j.State, j.ExitCode
		}
		array.Restarts = max(array.Restarts, j.Restarts)
	}
	var parts []string
	for _, state := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	array.Reason = strings.Join(parts, ", ")
	return array
}

// statePrecedence orders states by their effect on a job array. The highest one counts.
func statePrecedence(s State) int {
	switch {
	case s == "":
		return 0
	case s == StateCompleted:
		return 1
	case s.Done():
		return 2
	case s == StateRunning:
		return 4
	}
	return 3 // pending or in transition
}
