package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

type traceCmd struct {
	Which  string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	Output string `short:"o" default:"trace.json" placeholder:"FILE" help:"File to write, or - for standard output (default: ${default})."`
	Force  bool   `help:"Replace the file if it exists."`
}

func (c *traceCmd) Help() string {
	// Kong removes the brackets of "[log]", because log is also a Go package.
	return `The job file selects the steps to record, such as log.trace = "100-110". Open the file
in https://ui.perfetto.dev or chrome://tracing. Each rank is a process with up to three
tracks: computation, communication, and checkpoints in the background. The command lists
ranks with a missing or corrupt recording, and merges the others. docs/trace.md describes
the format.`
}

func (c *traceCmd) Run(p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil && run.Dir.Path == "" {
		return err
	}
	if run.IsSweep() {
		return exitError{exitUsage, hints.Add(fmt.Errorf("run directory %q belongs to a sweep: each trial has a separate timeline", run.Dir.Path),
			"select a trial, such as "+shellQuote(c.Which+"/0"))}
	}
	all, corrupt, err := trace.ReadDir(run.Dir.Traces(), !runs.IsOwn(run.Dir.Path), run.Dir.OpenTrace)
	p.noteCorrupt(corrupt)
	switch {
	case err != nil:
		return err
	case len(all) == 0 && len(corrupt) > 0:
		return fmt.Errorf("no usable recording in %q", run.Dir.Traces())
	case len(all) == 0:
		return hints.Add(fmt.Errorf("no recording in %q", run.Dir.Path),
			`set log.trace = "100-110" in the job file to record these steps`)
	}
	var m trace.Merged
	merge := func(w io.Writer) (err error) {
		m, err = trace.Merge(w, all)
		return err
	}
	path := c.Output
	if path == "-" {
		err = merge(p.Stdout)
	} else {
		path = p.abs(path)
		err = createFile(path, modePrivate, c.Force, merge)
	}
	if errors.Is(err, fs.ErrExist) {
		return exitError{exitUsage, hints.Add(fmt.Errorf("trace: %q already exists", path), "choose a different name with -o, or replace the file with --force")}
	}
	if err != nil {
		return fmt.Errorf("merge the timelines of %q: %w", run.Dir.Path, err)
	}
	p.noteTrace(m)
	if path != "-" {
		p.printf("wrote %s: %s\n", path, m)
	}
	return nil
}

// The maximum numbers of corrupt recordings, and of hosts with unknown clocks, that the command names.
const maxCorruptNotes, maxHostNames = 20, 20

// noteCorrupt reports corrupt recordings.
func (p *program) noteCorrupt(corrupt []trace.CorruptFile) {
	for _, c := range corrupt[:min(len(corrupt), maxCorruptNotes)] {
		what := "skipped"
		if c.Partial {
			what = "merged as far as it is readable"
		}
		p.note("corrupt recording %s, %s: %v", c.Name, what, c.Err)
	}
	if more := len(corrupt) - maxCorruptNotes; more > 0 {
		p.note("%s", format.Count(more, "more corrupt recording"))
	}
}

// noteTrace reports what the timeline lacks.
func (p *program) noteTrace(m trace.Merged) {
	if len(m.OtherAttempts) > 0 {
		p.note("skipped %s: recorded in a different attempt", format.Ranks(m.OtherAttempts))
	}
	if missing := m.Missing(); len(missing) > 0 {
		p.note("missing in the timeline: %s of %d", format.Ranks(missing), m.WorldSize)
	}
	if len(m.Unaligned) > 0 {
		p.note("cannot align the clocks of %s; assuming that they are correct", format.List(m.Unaligned, maxHostNames))
	}
	if m.Dropped > 0 {
		p.note("dropped %s, which did not fit into the buffers of the ranks; record fewer steps", format.Count(m.Dropped, "span"))
	}
}
