package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

type statusCmd struct {
	Which  []string `arg:"" optional:"" name:"run" help:"Run names, run directories, job files, or job IDs (default: all runs below runs/)."`
	JSON   bool     `help:"Print the answer as JSON."`
	Verify bool     `help:"Read the newest checkpoint of each run completely, and verify its digests."`
}

func (c *statusCmd) Help() string {
	phases := make([]string, len(watch.Phases))
	for i, p := range watch.Phases {
		phases[i] = string(p)
	}
	text := `Prints the details of a single run, or a table of several runs. "ddpbatch top" keeps the table up to date. The phases are: ` + strings.Join(phases, ", ") + "."
	return strings.Join(screen.Wrap(text, helpWidth, 0), "\n")
}

// helpWidth is the line width of help texts that contain generated lists.
const helpWidth = 87

func (c *statusCmd) Run(ctx context.Context, p *program) error {
	runs, err := c.runs(p)
	if err != nil {
		return err
	}
	// Show the state in the run directories even if Slurm does not respond.
	lookout := p.lookout()
	lookout.named = len(c.Which) > 0
	all, asked := lookout.look(ctx, runs)
	if all == nil && asked != nil {
		return asked
	}
	if c.Verify {
		verifyAll(ctx, all)
	}
	if c.JSON {
		if err := p.printJSON(all); err != nil {
			return err
		}
		return asked
	}
	switch {
	case len(all) == 0:
		p.noteNoRuns(p.abs(runsFolder))
		return nil
	case len(c.Which) == 1 && all[0].Elements != nil:
		p.showRuns(all[0].Elements) // the user named this sweep
	case len(c.Which) == 1:
		p.showRun(all[0])
	default:
		p.showRuns(all)
	}
	return asked
}

func verifyAll(ctx context.Context, all []watch.Status) {
	for i := range all {
		all[i].Verify(ctx)
		verifyAll(ctx, all[i].Elements)
	}
}

// labelled is the column of the text after a label.
const labelled = 12

// showRun prints the status of a single run in full.
func (p *program) showRun(s watch.Status) {
	s.Dir = p.short(s.Dir)
	if s.Phase == watch.Failed && s.Advice == "" && s.Job != "" {
		s.Advice = "failures known in its log: ddpbatch doctor --log " + shellQuote(s.Dir)
	}
	for _, l := range s.Details(time.Now()) {
		p.wrapf(labelled, "%-*s%s", labelled, l.Label, l.Text)
	}
}

// showRuns prints a table of runs. For the trials of a sweep, it adds a column for each key
// that the sweep varies.
func (p *program) showRuns(all []watch.Status) {
	header := []string{"RUN", "JOB", "PHASE", "STEP", "EPOCH", "LOSS", "ACCURACY", "SAVED", "NOTE"}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(all[0].Values)) {
		keys = append(keys, key)
		// Use the last part of the key, to keep the table narrow.
		header = slices.Insert(header, len(header)-1, strings.ToUpper(key[strings.LastIndexByte(key, '.')+1:]))
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		rows[i] = row(s)
		for _, key := range keys {
			rows[i] = slices.Insert(rows[i], len(rows[i])-1, s.Values[key])
		}
	}
	p.table(header, rows)
}

func (c *statusCmd) runs(p *program) ([]knownRun, error) {
	if len(c.Which) == 0 {
		return p.runs(p.abs(runsFolder))
	}
	var runs []knownRun
	for _, arg := range c.Which {
		r, err := p.findRun(arg)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// row returns the table row of a run.
func row(s watch.Status) []string {
	note := s.Detail
	switch {
	case s.Elements != nil:
		note = s.Reason
	case s.Phase == watch.Held:
		note = "it will not start by itself: " + note + "; " + s.Advice
	case s.Detail != "" && s.Phase == watch.CutShort || s.Detail == "":
		note = strings.TrimPrefix(note+": "+s.Advice, ": ")
		note = strings.TrimSuffix(note, ": ")
	}
	return []string{s.Label(), s.Job, string(s.Phase), number(s.Step), number(s.Epoch), figure(s.Loss), figure(s.Accuracy),
		number(s.Checkpoint), note}
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func figure(n *metrics.Number) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%.4g", float64(*n))
}
