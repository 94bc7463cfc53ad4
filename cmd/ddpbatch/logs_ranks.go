package main

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/lines"
	"github.com/ddpbatch/ddpbatch/jobs/rankoutput"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

func (c *logsCmd) selectsRanks() bool {
	return (c.Rank != nil || c.Node != "" || c.Failed || c.Component != "" || c.Attempt > 0 || c.all) && !c.Events
}

// selected returns the outputs that the flags select.
func (c *logsCmd) selected(a *rankoutput.Attempt) (found []rankoutput.Output, err error) {
	var one rankoutput.Output
	switch {
	case c.Component != "":
		return a.Component(c.Component)
	case c.Node != "":
		return a.Node(c.Node)
	case c.Rank != nil:
		one, err = a.Rank(*c.Rank)
	case c.Failed:
		one, err = a.Failed()
	default:
		return a.All(), nil
	}
	return []rankoutput.Output{one}, err
}

// rankLogs prints the output of the selected ranks. It reports false if the flags do not select the
// output of ranks, or if --grep must search the log because the run has no output of ranks.
func (c *logsCmd) rankLogs(ctx context.Context, p *program, store *runs.Store, run runs.Run) (done bool, err error) {
	if !c.selectsRanks() {
		return false, nil
	}
	attempt, err := rankoutput.Read(run, c.Attempt)
	if err != nil {
		return true, err
	}
	if attempt == nil && c.all {
		return false, nil
	}
	if attempt == nil {
		return true, c.withoutOutput(ctx, p, run)
	}
	found, err := c.selected(attempt)
	if err != nil {
		return true, err
	}
	labeled := slices.ContainsFunc(found, func(o rankoutput.Output) bool { return o.Label() != found[0].Label() })
	if c.Follow {
		var logs []*lines.Tail
		for _, o := range rankoutput.WithRestarts(found) {
			t := &lines.Tail{Open: o.Open}
			if labeled {
				t.Prefix = o.Label()
			}
			logs = append(logs, t)
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		return true, p.explainInterrupt(run, p.follow(ctx, logs, p.waitForEnd(store, new(atomic.Pointer[slurm.JobState]), run)))
	}
	for _, o := range found {
		prefixer := &lines.Prefixer{W: p.Stdout, Prefix: o.Label()}
		w := p.Stdout
		if labeled {
			w = prefixer
		}
		if err := o.Copy(w); err != nil {
			return true, err
		}
		_ = prefixer.EndLine() // p.Stdout records failed writes
	}
	return true, nil
}

// withoutOutput handles the flags for a run without output of ranks.
func (c *logsCmd) withoutOutput(ctx context.Context, p *program, run runs.Run) error {
	if c.Rank == nil {
		if !c.Failed {
			return exitError{exitUsage, hints.Errorf("`ddpbatch logs` prints the log of the run, and --rank prints the log of a rank", "run %q has no output of each rank: it uses the built-in trainer, has not started, or was started by an older version of ddpbatch", run.Record.Name)}
		}
		rank, err := rankoutput.FailedRank(run)
		if err != nil {
			return err
		}
		c.Rank = &rank
	}
	c.Events = true
	return c.print(ctx, p, p.runStore(), run)
}
