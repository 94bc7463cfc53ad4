package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/ddpbatch/ddpbatch/cmd/ddpbatch/manual"
	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// The exit codes of all commands. exitMeanings describes them.
const (
	exitDone     = exitcode.Done
	exitFailed   = exitcode.Failed
	exitUsage    = exitcode.Usage
	exitStopped  = exitcode.Stopped
	exitLost     = exitcode.Lost
	exitNoState  = exitcode.NoCheckpoint
	exitCanceled = exitcode.Canceled
)

// exitMeanings describes the exit codes for the help text and the reference.
var exitMeanings = []manual.Exit{
	{Code: exitDone, Meaning: "finished, or nothing to do"},
	{Code: exitFailed, Meaning: "failed"},
	{Code: exitUsage, Meaning: "usage error or invalid job file, or a job that cannot resume from the checkpoints of its run (check, submit); no job was submitted"},
	{Code: exitStopped, Meaning: "stopped early on request; the run resumes at its next start (wait: also if the program exited with code 0 after a stop request)"},
	{Code: exitLost, Meaning: "a rank was lost, hung, did not join, or received corrupt data"},
	{Code: exitNoState, Meaning: "no usable checkpoint for the job, for example because a key of the job file has changed, or because a newer version of ddpbatch wrote the newest checkpoint"},
	{Code: exitCanceled, Meaning: "canceled: by a second Control-C, or the job was canceled (wait)"},
}

// exitCode returns the exit code for err. An error can set its own code with a method
// ExitCode() int.
func exitCode(err error) int {
	var (
		parse *kong.ParseError // kong defines a different exit code for it
		coded interface{ ExitCode() int }
		spec  jobs.Diagnostics
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &parse):
		return exitUsage
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.As(err, &spec):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitCanceled
	}
	return exitFailed
}

// exitError attaches an exit code to an error. If err is nil, nothing more is printed, because
// the command has already printed the outcome.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }
func (e exitError) ExitCode() int { return e.code }

// A printedError wraps an error that must not be printed again. Another process or an earlier call
// prints it.
type printedError struct{ err error }

func (e printedError) Error() string { return e.err.Error() }
func (e printedError) Unwrap() error { return e.err }

// markPrinted marks err as already printed.
func markPrinted(err error) error {
	if err == nil {
		return nil
	}
	return printedError{err}
}

// usageError is a usage error that the parser does not detect, such as invalid combinations of
// flags.
type usageError struct{ message string }

func usage(message string) error { return usageError{message} }

func (e usageError) Error() string { return e.message }
func (e usageError) ExitCode() int { return exitUsage }
