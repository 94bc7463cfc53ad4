package rendezvous

import "time"

// State is how far a rank has come.
type State string

// The states of a rank, in the order in which it goes through them; a rank
// ends in one of the last four.
const (
	Missing State = "missing" // has not joined
	Joined  State = "joined"  // is connected
	Done    State = "done"    // left as it should: finished, or stopped when asked to
	Failed  State = "failed"  // left and said why
	Ended   State = "ended"   // left since it was told that the attempt is over
	Lost    State = "lost"    // its connection ended without a word: killed, crashed, or cut off
)

// Died is why a rank is lost whose connection has ended without a word: all that is
// known here.
const Died = "its process was killed or crashed"

// RankStatus is what the server knows of one rank.
type RankStatus struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	PID   int    `json:"pid,omitempty"`
	State State  `json:"state"`
	Exit  int    `json:"exit"`
	// Signal, "SIGKILL" say, ended the process, where who started it knows; Exit is 128
	// and its number then.
	Signal string    `json:"signal,omitempty"`
	Error  string    `json:"error,omitempty"`
	Step   int       `json:"step"`
	Phase  string    `json:"phase,omitempty"`
	Seen   time.Time `json:"seen,omitzero"` // when it was last heard
	// StopUnhandled reports that the rank's program was asked to stop, and that none of its
	// processes handled the signal.
	StopUnhandled bool `json:"stop_unhandled,omitempty"`
}

// Failure is the first thing that went wrong in an attempt.
type Failure struct {
	Rank   int    `json:"rank"`           // -1 when it is not about one rank
	Host   string `json:"host,omitempty"` // of the rank, or of all ranks of which one must be faulty
	State  State  `json:"state,omitempty"`
	Exit   int    `json:"exit,omitempty"`
	Signal string `json:"signal,omitempty"` // see RankStatus
	Step   int    `json:"step"`
	Phase  string `json:"phase,omitempty"`
	Reason string `json:"reason"`
	Advice string `json:"hint,omitempty"`
}

// Error is one line that names the rank, its host and the reason.
func (f *Failure) Error() string { return f.Reason }

// Hint says what to do about it, where that is known.
func (f *Failure) Hint() string { return f.Advice }

// Outcome is how an attempt ended.
type Outcome struct {
	Ranks []RankStatus
	// First is the first failure, or nil when every rank left with exit code 0.
	First *Failure
	// Exit is the exit code of the first rank that failed, or else the largest
	// with which a rank left.
	Exit int
}
