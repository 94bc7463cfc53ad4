package main

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/slurm"
)

type waitCmd struct {
	Which string `arg:"" name:"run" help:"Run directory, job file or job id; a sweep, or one of its elements."`
}

func (c *waitCmd) Help() string {
	return `The exit code is 0 if the job completed and was not asked to stop. Otherwise it says
what kind of end it was: for sweeps, that of the first element that did not complete.`
}

func (c *waitCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findSettled(ctx, c.Which)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	done, err := p.wait(ctx, run)
	if err == nil {
		p.printf("%s completed\n", done)
	}
	return p.goesOn(run, err)
}

// wait stays until the run's job is done, or those of all elements of a sweep, and
// returns its outcome, and what it waited for.
func (p *program) wait(ctx context.Context, run knownRun) (what string, err error) {
	if run.record.Sweep != nil {
		return p.waitSweep(ctx, run)
	}
	id, err := run.job()
	if err != nil {
		return "", err
	}
	s, err := p.slurmFor(run).Wait(ctx, id, p.tellChanges())
	if err != nil {
		return "", err
	}
	return "job " + id, p.outcome(run.dir, s)
}

// tellChanges tells each change of a job's state until it is done.
func (p *program) tellChanges() func(slurm.JobState) {
	last := ""
	return func(s slurm.JobState) {
		if text := s.String(); text != last && !s.Done() {
			p.note("job %s is %s", s.ID, text)
			last = text
		}
	}
}

func (p *program) waitSweep(ctx context.Context, run knownRun) (what string, err error) {
	elements, err := run.elements()
	if err != nil {
		return "", err
	}
	var waited []knownRun
	var ids []string
	for _, e := range elements {
		if id := e.record.LastJob(); id != "" {
			waited, ids = append(waited, e), append(ids, id)
		}
	}
	if len(ids) == 0 {
		return "", exitError{exitUsage, fmt.Errorf("no element of %q was submitted to Slurm", run.dir.Path)}
	}
	last := ""
	states, err := p.slurmFor(waited...).WaitAll(ctx, ids, func(now []slurm.JobState) {
		if text := tally(now); text != last {
			p.note("%s: %s", run.record.Name, text)
			last = text
		}
	})
	if err != nil {
		return "", err
	}
	var first error
	failed := 0
	for i, s := range states {
		if err := p.outcome(waited[i].dir, s); err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	if first != nil {
		return "", exitError{exitCode(first), hinted{fmt.Errorf("%d of %d elements did not complete; the first: %w", failed, len(states), first),
			"`ddpbatch status " + shellQuote(p.short(run.dir.Path)) + "` shows them all; submit --failed runs those that failed again"}}
	}
	return count(len(states), "element"), nil
}
