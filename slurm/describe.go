package slurm

import "strings"

// String is the state in a few words: "pending (Resources)".
func (j JobState) String() string {
	text := strings.ToLower(string(j.State))
	if j.Reason != "" {
		text += " (" + j.Reason + ")"
	}
	return text
}
