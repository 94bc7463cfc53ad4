package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// Placeholders of command.argv. The launcher replaces them in each attempt.
const (
	PlaceholderRunDir     = "run_dir"
	PlaceholderRunID      = "run_id"
	PlaceholderAttempt    = "attempt"
	PlaceholderCheckpoint = "checkpoint_dir"
	PlaceholderArrayTask  = "array_task"
	PlaceholderHostfile   = "hostfile" // with command.run = "once" only
)

// placeholderNames are all placeholders, in the order of messages.
var placeholderNames = []string{PlaceholderRunDir, PlaceholderRunID, PlaceholderAttempt, PlaceholderCheckpoint, PlaceholderArrayTask, PlaceholderHostfile}

// placeholder matches a placeholder, an escaped placeholder such as {{run_dir}}, and a
// variable of a shell such as ${run_dir}, which is not a placeholder.
var placeholder = lazyregexp.New(`\{\{(` + strings.Join(placeholderNames, "|") + `)\}\}|\$?\{(` + strings.Join(placeholderNames, "|") + `)\}`)

// Expand replaces the placeholders in text by their values. {{run_dir}} becomes {run_dir}. All
// other text stays unchanged, such as the braces of JSON, of shells, and of Python's format
// strings. A placeholder without a value also stays unchanged.
func Expand(text string, values map[string]string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return placeholder().ReplaceAllStringFunc(text, func(found string) string {
		switch {
		case strings.HasPrefix(found, "{{"):
			return found[1 : len(found)-1]
		case strings.HasPrefix(found, "$"):
			return found
		}
		if value, ok := values[found[1:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// hasPlaceholder reports whether text contains one of the named placeholders.
func hasPlaceholder(text string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, "{"+name+"}") })
}

// bracedWord matches a word in braces that could be a misspelled placeholder.
var bracedWord = lazyregexp.New(`(?:^|[^{$])\{([a-z]+(?:_[a-z]+)?)\}(?:$|[^}])`)

// checkPlaceholders warns about words in braces that are probably misspelled placeholders.
func (c *programCheck) checkPlaceholders() {
	for i, word := range c.argv {
		if i > 0 && slices.Contains([]string{"-c", "-e"}, c.argv[i-1]) {
			continue // code for an interpreter
		}
		for _, m := range bracedWord().FindAllStringSubmatch(word, -1) {
			meant := nearest(m[1], placeholderNames)
			if meant == "" || meant == m[1] {
				continue
			}
			c.report(false, i, fmt.Sprintf("write {%s}; placeholders: {%s}", meant, strings.Join(placeholderNames, "}, {")),
				"{%s} is not a placeholder, so the program receives it unchanged", m[1])
		}
	}
}

// CheckpointDirIn returns the checkpoint directory of a run, or an empty string for the default,
// which is in the run directory.
func (c *Command) CheckpointDirIn(runDir, runID string) string {
	return Expand(string(c.CheckpointDir), map[string]string{PlaceholderRunDir: runDir, PlaceholderRunID: runID})
}

// resolveCheckpointDir makes the checkpoint directory absolute.
func (c *Command) resolveCheckpointDir(baseDir string) {
	if c.CheckpointDir != "" && !strings.HasPrefix(string(c.CheckpointDir), "{"+PlaceholderRunDir+"}") {
		c.CheckpointDir = Text(ResolvePath(baseDir, c.CheckpointDir))
	}
}
