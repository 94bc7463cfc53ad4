package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode"
)

// CommandError is a Slurm program that could not be run, failed, or did not
// answer in time.
type CommandError struct {
	Argv   []string      // the whole command line, the program's name first
	Err    error         // *exec.ExitError, exec.ErrNotFound, a context's error or a system error
	After  time.Duration // how long the program ran
	Stderr string        // what it wrote to standard error, at most 64 KiB
}

// Error names the program and lets it speak for itself.
func (e *CommandError) Error() string {
	program := e.Argv[0]
	said := oneLine(e.Stderr)
	switch {
	case errors.Is(e.Err, exec.ErrNotFound):
		return program + ": not found in PATH"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return withDetail(fmt.Sprintf("%s gave no answer within %s", program, e.After.Round(time.Second)), said)
	case errors.Is(e.Err, context.Canceled):
		return program + ": stopped before it answered"
	}
	return withDetail(fmt.Sprintf("%s failed (%v)", program, e.Err), said)
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// Hint says what to do, in terms of the job file where that helps; it is empty
// where nothing is known.
func (e *CommandError) Hint() string {
	// What was left open matters more than what was refused: in a retry of its
	// own, sbatch may have met both.
	a, silent := find(silences, e.Stderr)
	late := errors.Is(e.Err, context.DeadlineExceeded)
	silent = silent || late
	submits := e.Argv[0] == "sbatch" && !slices.Contains(e.Argv, "--test-only")
	switch {
	case errors.Is(e.Err, exec.ErrNotFound):
		return "is Slurm's client installed here? On a login node, try `module load slurm`"
	case submits && (late || silent && a.hint == ""):
		return mayBeSubmitted
	case a.hint != "":
		return a.hint
	case silent:
		return "the controller does not answer: ask it with `scontrol ping`, and try again later"
	}
	a, _ = find(slices.Concat(unsent, refusals), e.Stderr)
	return a.hint
}

const mayBeSubmitted = "Slurm may have taken the job all the same: look with `squeue --me` before you submit again"

func withDetail(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}

// oneLine joins the lines of a program's output and drops what could steer a
// terminal.
func oneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(strings.Map(printable, line))
		if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

func printable(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case !unicode.IsPrint(r):
		return -1
	}
	return r
}
