package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
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
in https://ui.perfetto.dev or chrome://tracing. Each rank is a process with two tracks:
computation and communication. The command lists ranks with a missing or corrupt
recording, and merges the others. docs/trace.md describes the format.`
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
	all, corrupt, err := p.recordings(run.Dir)
	switch {
	case err != nil:
		return err
	case len(all) == 0 && corrupt > 0:
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
		p.printf("wrote %s: %s\n", path, traceLine(m))
	}
	return nil
}

// Limits for all recordings in the run of another user, which can be links to one file: their size in
// bytes, and their number of spans.
const maxForeignTraces, maxForeignSpans = 2 << 30, 40_000_000

// maxCorruptNotes is the maximum number of corrupt recordings that the command names.
const maxCorruptNotes = 20

// recordings returns the readable timelines of all ranks. It reports and counts the corrupt
// ones.
func (p *program) recordings(dir rundir.Dir) (all []*trace.Recording, corrupt int, err error) {
	entries, err := os.ReadDir(dir.Traces())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	own, size, spans := runs.IsOwn(dir.Path), int64(0), 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "rank-") {
			continue // a temporary file of a rank that is still writing
		}
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
		if !own && size > maxForeignTraces {
			return nil, 0, fmt.Errorf("the recordings in %q belong to another user, and have more than %s", dir.Traces(), format.Bytes(maxForeignTraces))
		}
		r, err := readRecording(dir, e.Name())
		if err != nil {
			corrupt++
			what := "skipped"
			if r != nil {
				what = "merged as far as it is readable"
			}
			if corrupt <= maxCorruptNotes {
				p.note("corrupt recording %s, %s: %v", e.Name(), what, err)
			}
		}
		if r != nil {
			all = append(all, r)
			spans += len(r.Spans)
		}
		if !own && spans > maxForeignSpans {
			return nil, 0, fmt.Errorf("the recordings in %q belong to another user, and have more than %d spans", dir.Traces(), maxForeignSpans)
		}
	}
	if more := corrupt - maxCorruptNotes; more > 0 {
		p.note("%s", format.Count(more, "more corrupt recording"))
	}
	return all, corrupt, nil
}

func readRecording(dir rundir.Dir, name string) (*trace.Recording, error) {
	f, err := dir.OpenTrace(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trace.Read(f)
}

// noteTrace reports what the timeline lacks.
func (p *program) noteTrace(m trace.Merged) {
	if len(m.OtherAttempts) > 0 {
		p.note("skipped %s: recorded in a different attempt", format.Ranks(m.OtherAttempts))
	}
	there := map[int]bool{}
	for _, rank := range slices.Concat(m.Ranks, m.OtherAttempts) {
		there[rank] = true
	}
	var missing []int
	for rank := range m.WorldSize {
		if !there[rank] {
			missing = append(missing, rank)
		}
	}
	if len(missing) > 0 {
		p.note("missing in the timeline: %s of %d", format.Ranks(missing), m.WorldSize)
	}
	if len(m.Unaligned) > 0 {
		p.note("cannot align the clocks of %s; assuming that they are correct", strings.Join(m.Unaligned, ", "))
	}
	if m.Dropped > 0 {
		p.note("dropped %s, which did not fit into the buffers of the ranks; record fewer steps", format.Count(m.Dropped, "span"))
	}
}

// traceLine summarizes the contents of a timeline.
func traceLine(m trace.Merged) string {
	line := format.Count(len(m.Ranks), "rank") + " on " + format.Count(m.Nodes, "node")
	switch {
	case m.First == 0:
		line += ", no steps"
	case m.First == m.Last:
		line += fmt.Sprintf(", step %d", m.First)
	default:
		line += fmt.Sprintf(", steps %d to %d", m.First, m.Last)
	}
	if m.Nodes > 1 {
		line += fmt.Sprintf(", clocks within %s", m.ClockError.Round(100*time.Nanosecond))
	}
	return line
}
