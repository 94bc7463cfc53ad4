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
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

type traceCmd struct {
	Which  string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	Output string `short:"o" default:"trace.json" placeholder:"FILE" help:"File to write, or - for standard output (default: ${default})."`
	Force  bool   `help:"Replace the file if it is there."`
}

func (c *traceCmd) Help() string {
	// Kong removes the brackets of "[log]", because log is also a Go package.
	return `The job file selects the steps: log.trace = "100-110". The file opens in
https://ui.perfetto.dev and in chrome://tracing: each rank is a process, with a
track for what it computes and one for what ranks exchange meanwhile. Ranks whose
recordings are missing or damaged are named, and the others are shown. docs/trace.md
says what is in it.`
}

func (c *traceCmd) Run(p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil && run.dir.Path == "" {
		return err
	}
	if run.record.Sweep != nil {
		return exitError{exitUsage, hints.Add(fmt.Errorf("run directory %q is that of a sweep: each element has a timeline of its own", run.dir.Path),
			fmt.Sprintf("name one, such as %s/0", c.Which))}
	}
	all, damaged, err := p.recordings(run.dir)
	switch {
	case err != nil:
		return err
	case len(all) == 0 && damaged > 0:
		return fmt.Errorf("no recording in %q can be used", run.dir.Traces())
	case len(all) == 0:
		return hints.Add(fmt.Errorf("no timeline was recorded in %q", run.dir.Path),
			`trace = "100-110" in the job file's [log] has each rank record these steps, and write them when they are done`)
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
		return exitError{exitUsage, hints.Add(fmt.Errorf("trace: %q already exists", path), "give another name with -o, or --force to replace it")}
	}
	if err != nil {
		return fmt.Errorf("merge the timelines of %q: %w", run.dir.Path, err)
	}
	p.noteTrace(m)
	if path != "-" {
		p.printf("wrote %s: %s\n", path, traceLine(m))
	}
	return nil
}

// recordings returns the readable timelines of all ranks. It reports and counts the corrupt
// ones.
func (p *program) recordings(dir rundir.Dir) (all []*trace.Recording, damaged int, err error) {
	entries, err := os.ReadDir(dir.Traces())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "rank-") {
			continue // a temporary file of a rank that is still writing
		}
		r, err := readRecording(dir, e.Name())
		if err != nil {
			damaged++
			what := "left out"
			if r != nil {
				what = "in the timeline as far as it can be read"
			}
			p.note("the recording %s is damaged, and %s: %v", e.Name(), what, err)
		}
		if r != nil {
			all = append(all, r)
		}
	}
	return all, damaged, nil
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
		p.note("left out, as they are of another attempt: %s", rankList(m.OtherAttempts))
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
		p.note("the timeline is without %s of %d", rankList(missing), m.WorldSize)
	}
	if len(m.Unaligned) > 0 {
		p.note("clocks cannot be compared with those of %s: they are taken to be right", strings.Join(m.Unaligned, ", "))
	}
	if m.Dropped > 0 {
		p.note("%s did not fit into ranks' memory and are missing: record fewer steps", format.Count(m.Dropped, "span"))
	}
}

// traceLine summarizes the contents of a timeline.
func traceLine(m trace.Merged) string {
	line := format.Count(len(m.Ranks), "rank") + " on " + format.Count(m.Nodes, "node")
	switch {
	case m.First == 0:
		line += ", no step"
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

// rankList lists ranks, up to a limit.
func rankList(ranks []int) string {
	const most = 8
	var words []string
	for _, r := range ranks[:min(len(ranks), most)] {
		words = append(words, fmt.Sprint(r))
	}
	list := format.Count(len(ranks), "rank") + " (" + strings.Join(words, ", ")
	if len(ranks) > most {
		list += ", ..."
	}
	return list + ")"
}
