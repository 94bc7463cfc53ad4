package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// TestExitCode checks the exit code of each kind of error, also if it is wrapped.
func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitDone},
		{errors.New("x"), exitFailed},
		{usage("x"), exitUsage},
		{jobs.Diagnostics{{Message: "x"}}, exitUsage},
		{exitError{exitStopped, nil}, exitStopped},
		{fmt.Errorf("x: %w", exitError{exitNoState, errors.New("y")}), exitNoState},
		{printedError{exitError{exitLost, errors.New("y")}}, exitLost},
		{hints.Add(usage("x"), "y"), exitUsage},
		{&slurm.CommandError{Argv: []string{"squeue"}, Err: context.Canceled}, exitCanceled},
		{fmt.Errorf("x: %w", context.Canceled), exitCanceled},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%#v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// TestReport checks how errors and hints are printed. Control characters are removed.
func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"plain":      {errors.New("open: no"), "ddpbatch: error: open: no\n"},
		"hint":       {fmt.Errorf("a: %w", hints.Add(errors.New("b"), "c")), "ddpbatch: error: a: b\nddpbatch: hint: c\n"},
		"usage":      {usage("a"), "ddpbatch: error: a\nddpbatch: hint: usage: ddpbatch x\n"},
		"control":    {errors.New("a\x1b[31mb\r"), "ddpbatch: error: a[31mb\n"},
		"silent":     {printedError{errors.New("a")}, ""},
		"said":       {exitError{exitStopped, nil}, ""},
		"mistakes":   {jobs.Diagnostics{{File: "j", Line: 2, Column: 1, Source: "x", Length: 1, Message: "m"}}, "j:2:1: m\n    2 | x\n      | ^\nddpbatch: error: 1 error in j\n"},
		"no mistake": {nil, ""},
	} {
		var b strings.Builder
		report(&b, c.err, "ddpbatch x")
		if b.String() != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, b.String(), c.want)
		}
	}
}
