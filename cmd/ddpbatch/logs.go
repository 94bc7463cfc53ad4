package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// logPoll is how often a log is looked at for more.
const logPoll = 250 * time.Millisecond

type logsCmd struct {
	Which  string `arg:"" name:"run" help:"Run directory, job file or job id; a sweep, or one of its elements."`
	Follow bool   `short:"f" help:"Go on until the job is done."`
	Plain  bool   `help:"With -f on a terminal, too: lines only, no view that changes."`
	Rank   *int   `placeholder:"N" help:"The log of rank N, in JSON lines, instead of what the job printed."`
}

func (c *logsCmd) Help() string {
	return `What all ranks print is one log, which goes on when Slurm requeues the job. The lines
of a sweep begin with the number of their element. With -f on a terminal, a few lines
below show how a run stands.`
}

func (c *logsCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findSettled(ctx, c.Which)
	if err != nil {
		return err
	}
	if c.Rank != nil && *c.Rank < 0 {
		return usage("--rank must be 0 or more")
	}
	if run.record.Sweep != nil {
		return c.sweep(ctx, p, run)
	}
	id, err := run.job()
	if err != nil && c.Rank == nil {
		return hinted{err, "a job that ran here printed to its terminal; --rank 0 shows the log of rank 0"}
	}
	log := c.log(run, "")
	if !c.Follow {
		if err := c.knows(run); err != nil {
			return err
		}
		return p.printLogs(false, log)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	var ids []string
	if id != "" {
		ids = []string{id}
	}
	var now atomic.Pointer[slurm.JobState]
	if !c.Plain {
		figures := watch.NewFigures(run.dir.Metrics())
		defer p.startLive(func() watch.Status {
			s := stored(run, figures)
			if told := now.Load(); told != nil {
				s.Take(*told)
			}
			s.Settle(failureOf(run.dir, s.Job), time.Now())
			return s
		}).stop()
	}
	err = p.follow(ctx, p.slurmFor(run), []*tail{log}, ids, &now)
	if id == "" {
		return err // a run without a job is another terminal's affair
	}
	return p.goesOn(run, err)
}

// log is the one that was asked for.
func (c *logsCmd) log(run knownRun, prefix string) *tail {
	if c.Rank != nil {
		return &tail{path: run.dir.RankLog(*c.Rank), prefix: prefix}
	}
	return &tail{path: run.dir.BatchLog(run.record.LastJob()), prefix: prefix}
}

// knows says so if other ranks have logs and the one that is asked for has none.
func (c *logsCmd) knows(run knownRun) error {
	if c.Rank == nil {
		return nil
	}
	path := run.dir.RankLog(*c.Rank)
	logs, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil // printing it says what is wrong
	}
	var ranks []string
	for _, l := range logs {
		if strings.HasPrefix(l.Name(), "rank-") {
			ranks = append(ranks, l.Name())
		}
	}
	if len(ranks) == 0 || slices.Contains(ranks, filepath.Base(path)) {
		return nil
	}
	return usage(fmt.Sprintf("rank %d has no log: %s has %s to %s", *c.Rank, filepath.Dir(path), ranks[0], ranks[len(ranks)-1]))
}

// sweep prints the logs of all elements.
func (c *logsCmd) sweep(ctx context.Context, p *program, run knownRun) error {
	elements, err := run.elements()
	if err != nil {
		return err
	}
	var logs []*tail
	var ids []string
	for i, e := range elements {
		if id := e.record.LastJob(); id != "" {
			logs, ids = append(logs, c.log(e, fmt.Sprintf("[%d] ", i))), append(ids, id)
		}
	}
	if len(logs) == 0 {
		return exitError{exitUsage, fmt.Errorf("no element of %q was submitted to Slurm", run.dir.Path)}
	}
	if !c.Follow {
		return p.printLogs(false, logs...)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	return p.goesOn(run, p.follow(ctx, p.slurmFor(elements...), logs, ids, new(atomic.Pointer[slurm.JobState])))
}

// printLogs copies what is there. That there is no log at all is an error; one of
// several may not have begun. Over says that the jobs have ended.
func (p *program) printLogs(over bool, logs ...*tail) error {
	var missing error
	found := false
	for _, log := range logs {
		err := log.copy(p.Stdout)
		switch {
		case err == nil:
			found = true
		case errors.Is(err, fs.ErrNotExist):
			missing = err
		default:
			return err
		}
		log.end(p.Stdout)
	}
	const own = "A job of a script of your own prints where that script says; --rank 0 is the log of rank 0"
	switch {
	case found:
		return nil
	case over:
		return hinted{fmt.Errorf("there is no log: %w", missing), "`ddpbatch status` says how the job ended: one that never started has none. " + own}
	}
	return hinted{fmt.Errorf("there is no log yet: %w", missing), "`ddpbatch status` says whether the job has started, or how it ended; -f waits for it. " + own}
}

// follow copies the logs until the jobs are done, or for a run without a job until
// it is interrupted. A requeued job goes on in its log, and one that Slurm starts
// on other nodes, too. The state of the first job is kept in first.
func (p *program) follow(ctx context.Context, client slurm.Client, logs []*tail, ids []string, first *atomic.Pointer[slurm.JobState]) error {
	over := make(chan error, 1)
	if len(ids) > 0 {
		ctx, stop := context.WithCancel(ctx)
		told := make(chan struct{})
		go func() {
			defer close(told)
			over <- p.followStates(ctx, client, ids, first)
		}()
		defer func() { stop(); <-told }() // what it says goes where the caller has it shown
	}
	for {
		for _, log := range logs {
			if err := log.copy(p.Stdout); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		select {
		case err := <-over:
			if err != nil {
				return err
			}
			// What was printed between the last look and the end.
			return p.printLogs(true, logs...)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(logPoll):
		}
	}
}

// followStates waits for the jobs, and tells what their logs do not show: that
// they wait, and how they ended.
func (p *program) followStates(ctx context.Context, client slurm.Client, ids []string, first *atomic.Pointer[slurm.JobState]) error {
	last := ""
	states, err := client.WaitAll(ctx, ids, func(states []slurm.JobState) {
		now := states[0]
		first.Store(&now)
		text := tally(states)
		if len(states) == 1 {
			text = fmt.Sprintf("job %s is %s", states[0].ID, states[0])
			if states[0].State != slurm.StatePending {
				return // its log shows what a running job does
			}
		}
		if text != last {
			p.note("%s", text)
			last = text
		}
	})
	if err == nil && len(states) == 1 {
		p.note("job %s is %s", states[0].ID, states[0])
	}
	return err
}
