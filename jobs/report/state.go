package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/jobs/watch"
)

// state is how a run stands, in a word and a sentence.
type state struct {
	Word, Text string
	Tone       string // good, wait, bad: the colour
}

// state is the phase as `ddpbatch status` tells it.
func (r *Run) state() state {
	s := r.Status
	st := state{Word: string(s.Phase), Tone: "wait"}
	switch s.Phase {
	case watch.Done:
		st.Tone = "good"
		if s.Finished && s.Checkpoint != nil {
			st.Text = fmt.Sprintf("The training has finished after %d steps.", *s.Checkpoint)
		}
	case watch.Failed, watch.Killed:
		st.Tone = "bad"
	}
	var words []string
	for _, text := range []string{st.Text, s.Detail, s.Advice} {
		if text != "" {
			words = append(words, sentence(text))
		}
	}
	// A job that was sent after the training was done, and cancelled, changes nothing of it.
	if r.End != nil && s.Phase.Over() && (s.Phase != watch.Done || r.End.Exit == 0) {
		words = append(words, fmt.Sprintf("Exit code %d.", r.End.Exit))
	}
	st.Text = strings.Join(words, " ")
	return st
}

// sentence begins a message with a capital letter and ends it with a full stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(first)) + s[size:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
