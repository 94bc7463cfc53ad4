package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type waitCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID; also a sweep or one of its elements."`
}

func (c *waitCmd) Help() string {
	return `The exit code is 0 if the job completed without a stop request. Otherwise, it describes
how the job ended. For a sweep, it is the code of the first element that did not
complete. Runs that were launched without Slurm have the same exit codes.`
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
	return p.explainInterrupt(run, err)
}

// wait waits for the run's job, or for the jobs of all trials of a sweep. It returns a
// description of the jobs, or an error if a run did not finish.
func (p *program) wait(ctx context.Context, run knownRun) (what string, err error) {
	if run.record.Sweep != nil {
		return p.waitSweep(ctx, run)
	}
	if run.isLaunched() {
		end, err := p.waitForLaunch(ctx, run)
		if err != nil {
			return "", err
		}
		return "run " + run.record.Name, p.launchOutcome(run, end)
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

// tellChanges returns a function that prints each change of a job's state until the job ends.
func (p *program) tellChanges() func(slurm.JobState) {
	last := ""
	return func(s slurm.JobState) {
		if text := s.String(); text != last && !s.Done() {
			p.note("job %s is %s", s.ID, text)
			last = text
		}
	}
}

// waitSweep waits for all trials of a sweep. The error names the first trial that did not
// complete.
func (p *program) waitSweep(ctx context.Context, run knownRun) (what string, err error) {
	elements, err := run.elements()
	if err != nil {
		return "", err
	}
	waited, ids := jobsAmong(elements)
	outcomes := make([]error, len(elements)) // by index of the trial
	n := 0
	if len(ids) > 0 {
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
		for i, s := range states {
			at := slices.IndexFunc(elements, func(e knownRun) bool { return e.dir == waited[i].dir })
			outcomes[at] = p.outcome(waited[i].dir, s)
			n++
		}
	}
	for i, e := range elements {
		if !e.isLaunched() {
			continue
		}
		end, err := p.waitForLaunch(ctx, e)
		if err != nil {
			return "", err
		}
		outcomes[i] = p.launchOutcome(e, end)
		n++
	}
	if n == 0 {
		return "", noElement(run)
	}
	failed := slices.DeleteFunc(outcomes, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		return "", exitError{exitCode(failed[0]), hints.Add(fmt.Errorf("%d of %d elements did not complete; the first: %w", len(failed), n, failed[0]),
			"`ddpbatch status "+shellQuote(p.short(run.dir.Path))+"` shows them all; submit --failed runs those that failed again")}
	}
	return format.Count(n, "element"), nil
}

// jobsAmong returns the runs that were last started as Slurm jobs, and their job IDs. It omits
// runs of a local launcher.
func jobsAmong(elements []knownRun) (runs []knownRun, ids []string) {
	for _, e := range elements {
		if id := e.record.LastJob(); id != "" && !e.isLaunched() {
			runs, ids = append(runs, e), append(ids, id)
		}
	}
	return runs, ids
}

// noElement returns the error for a sweep without any started trial.
func noElement(run knownRun) error {
	return exitError{exitUsage, fmt.Errorf("no element of %q was submitted to Slurm or launched", run.dir.Path)}
}
