package rendezvous

import "time"

// A State is the state of a rank.
type State string

// The states of a rank, in order. The last four are final.
const (
	Missing State = "missing" // has not joined
	Joined  State = "joined"  // is connected
	Done    State = "done"    // left normally: finished, or stopped on request
	Failed  State = "failed"  // left with an error
	Ended   State = "ended"   // left because the attempt ended
	Lost    State = "lost"    // its connection ended without a leave message: killed, crashed, or disconnected
)

// Died is the error of a rank whose connection ended without a leave message. The server has no
// other information.
const Died = "its process was killed or crashed"

// A RankStatus is the server's record of a rank.
type RankStatus struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	PID   int    `json:"pid,omitempty"`
	State State  `json:"state"`
	Exit  int    `json:"exit"`
	// Signal is the signal that ended the process, such as "SIGKILL", if the process's parent
	// reports it. Exit is then 128 plus the signal number.
	Signal string    `json:"signal,omitempty"`
	Error  string    `json:"error,omitempty"`
	Step   int       `json:"step"`
	Phase  string    `json:"phase,omitempty"`
	Seen   time.Time `json:"seen,omitzero"` // time of its last message
	// StopUnhandled reports that the rank's program received a stop signal that none of its
	// processes handled.
	StopUnhandled bool `json:"stop_unhandled,omitempty"`
}

// A Failure is the first failure of an attempt.
type Failure struct {
	Rank   int    `json:"rank"`           // -1 if it is not about a single rank
	Host   string `json:"host,omitempty"` // host of the rank, or of all suspects
	State  State  `json:"state,omitempty"`
	Exit   int    `json:"exit,omitempty"`
	Signal string `json:"signal,omitempty"` // see RankStatus
	Step   int    `json:"step"`
	Phase  string `json:"phase,omitempty"`
	Reason string `json:"reason"`
	Advice string `json:"hint,omitempty"`
	// PortTaken reports that a process that does not belong to the program had taken its port. A
	// new attempt with a different port can succeed.
	PortTaken bool `json:"port_taken,omitempty"`
}

// Error returns one line that names the rank, its host, and the reason.
func (f *Failure) Error() string { return f.Reason }

// Hint returns the fix, or "" if it is unknown.
func (f *Failure) Hint() string { return f.Advice }

// An Outcome is the result of an attempt.
type Outcome struct {
	Ranks []RankStatus
	// First is the first failure, or nil if no rank failed.
	First *Failure
	// Exit is the exit code of the rank that left with the first failure, or else the largest exit code
	// of the ranks that left before. A rank that was lost or stalled has no exit code.
	Exit int
}
