package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/jobs/watch"
)

// state is the status of a run as a word and as sentences.
type state struct {
	Word, Text string
	Tone       string // color: good, wait, or bad
}

// describeState returns the phase of the run, as `ddpbatch status` shows it.
func (r *Run) describeState() state {
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
	// A job that was submitted after the training was complete, and then canceled, does not
	// change the result.
	if r.End != nil && s.Phase.Over() && (s.Phase != watch.Done || r.End.Exit == 0) {
		words = append(words, fmt.Sprintf("Exit code %d.", r.End.Exit))
	}
	st.Text = strings.Join(words, " ")
	return st
}

// sentence capitalizes the first letter of a message and adds a period at its end.
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
