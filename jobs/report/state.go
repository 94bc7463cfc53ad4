package report

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// state is how a run stands, in a word and a sentence.
type state struct {
	Word, Text string
	Tone       string // good, wait, bad: the colour
}

// state is what the directory tells, and what Slurm says where that is newer.
func (r *Run) state() state {
	if len(r.Checkpoints) > 0 && r.Checkpoints[0].Manifest != nil && r.Checkpoints[0].Manifest.Finished {
		return state{"finished", fmt.Sprintf("All that the job file asks for is trained: %d steps.", r.Checkpoints[0].Step), "good"}
	}
	if j := r.Job; j != nil && !j.State.Done() && j.State != slurm.StateUnknown {
		text := "Slurm says of job " + j.ID + ": " + strings.ToLower(string(j.State))
		if j.Reason != "" {
			text += " (" + j.Reason + ")"
		}
		return state{strings.ToLower(string(j.State)), text + ".", "wait"}
	}
	last := len(r.Attempts) - 1
	switch {
	case r.End == nil && last >= 0 && r.Attempts[last].End == nil:
		return state{"no end", "The last attempt runs, or its launcher was killed before it could say how it ended.", "wait"}
	case r.End == nil && last < 0:
		return state{"not begun", "No launcher has begun here.", "wait"}
	case r.End == nil:
		return state{"no end", "The last attempt ended, and its launcher has not said how the job did.", "wait"}
	}
	what := exitWords(r.End.Exit)
	s := state{what.word, what.text + fmt.Sprintf(" Exit code %d.", r.End.Exit), what.tone}
	if f := r.failure(); f != "" && what.tone == "bad" {
		s.Text = sentence(f) + " " + s.Text
	}
	return s
}

// failure is the reason of the last failure; empty if there is none.
func (r *Run) failure() string {
	if r.Failure != nil && r.Failure.First != nil {
		return r.Failure.First.Reason
	}
	return ""
}

type ending struct{ word, text, tone string }

// exitWords are the exit codes of a launcher in words.
func exitWords(code int) ending {
	switch code {
	case 0:
		return ending{"done", "All ranks ended well.", "good"}
	case 3:
		return ending{"stopped", "It was stopped before its end, and goes on when it is started again.", "wait"}
	case 4:
		return ending{"rank lost", "A rank was lost, hung or did not come.", "bad"}
	case 5:
		return ending{"no checkpoint", "There are checkpoints, and none can be used.", "bad"}
	case 130:
		return ending{"cancelled", "It was ended by a person.", "wait"}
	}
	return ending{"failed", "It failed.", "bad"}
}

// sentence ends a message with a full stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}
