package sbatch

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// An option is an option in a command line. Its name has no hyphens at the start.
type option struct {
	name, value string
	known       bool  // whether the value is known
	source      []arg // words in the command line
}

// String returns the option in its long form: --name=value, or --name if the value is empty.
func (o option) String() string {
	if o.value == "" {
		return "--" + o.name
	}
	return "--" + o.name + "=" + o.value
}

// valueWord returns the word of the command line that contains the value.
func (o option) valueWord() *syntax.Word { return o.source[len(o.source)-1].word }

// takeValue sets the value of an option to the next word of the command line, if there is one.
func (o *option) takeValue(args []arg) (rest []arg) {
	if len(args) == 0 {
		return nil
	}
	o.value, o.known, o.source = args[0].text, args[0].known, append(o.source, args[0])
	return args[1:]
}

// parseCount returns a positive number. ok is false if text is not a number or is too large for a job.
func parseCount(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n <= 1<<20
}

func words(s string) []string { return strings.Fields(s) }

func wordSet(s string) map[string]bool {
	all := map[string]bool{}
	for _, w := range words(s) {
		all[w] = true
	}
	return all
}
