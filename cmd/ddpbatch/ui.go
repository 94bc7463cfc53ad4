package main

// The rules of terminal output, all in this file:
//   - What a command was asked for goes to standard output, all else to
//     standard error, where each line begins with "ddpbatch: ".
//   - An error is one line, "ddpbatch: error: what failed: why", lower case and
//     without a full stop. What to do about it is a second line,
//     "ddpbatch: hint: ...". Mistakes in a job file stand alone, each with its
//     place and the line.
//   - Every table has a --json form.

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/alecthomas/kong"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// Exit codes. A [command] job's own code is passed on unchanged.
const (
	exitDone      = 0
	exitFailed    = 1
	exitUsage     = 2   // a mistake in the job file or the command line
	exitStopped   = 3   // stopped before the end, can be resumed
	exitLost      = 4   // a rank was lost, did not come or hung
	exitNoState   = 5   // there are checkpoints, but none can be used
	exitCancelled = 130 // ended by a second Control-C
)

// usageError is a mistake on the command line.
type usageError string

func usage(text string) error { return usageError(text) }

func (u usageError) Error() string { return string(u) }

// ExitCode is that of wrong usage.
func (usageError) ExitCode() int { return exitUsage }

// exitError ends the program with a code; err may be nil when there is nothing
// more to say.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return "exit code " + strconv.Itoa(e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// ExitCode is the code.
func (e exitError) ExitCode() int { return e.code }

// silent is an error that somebody else prints.
type silent struct{ error }

func (s silent) Unwrap() error { return s.error }

// finish prints an error, if there is one, and returns the exit code.
func (p *program) finish(err error) int {
	if err == nil {
		return exitDone
	}
	code := exitCode(err)
	var mute silent
	var ended exitError
	if errors.As(err, &mute) || errors.As(err, &ended) && ended.err == nil {
		return code
	}
	var wrong jobs.Diagnostics
	if errors.As(err, &wrong) {
		_ = wrong.Render(p.Stderr)
	} else {
		fmt.Fprintf(p.Stderr, "ddpbatch: error: %v\n", err)
	}
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		fmt.Fprintf(p.Stderr, "ddpbatch: hint: %s\n", hinted.Hint())
	}
	return code
}

func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	var wrong jobs.Diagnostics
	var parse *kong.ParseError
	switch {
	case errors.As(err, &parse), errors.As(err, &wrong):
		return exitUsage
	case errors.As(err, &coded):
		return coded.ExitCode()
	}
	return exitFailed
}

// note tells something beside the matter, on standard error.
func (p *program) note(format string, args ...any) {
	fmt.Fprintf(p.Stderr, "ddpbatch: "+format+"\n", args...)
}

// printJSON prints v as indented JSON.
func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// count is "1 rank", "2 ranks".
func count(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}
