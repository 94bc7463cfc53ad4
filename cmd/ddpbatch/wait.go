package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type waitCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID; also a sweep or one of its trials."`
}

func (c *waitCmd) Help() string {
	return `The exit code is 0 if the job completed without a stop request. Otherwise, it describes
how the job ended. For a sweep, it is the code of the first trial that did not
complete. Runs that were launched without Slurm have the same exit codes.`
}

func (c *waitCmd) Run(ctx context.Context, p *program) error {
	run, err := p.runStore().FindWithJob(ctx, c.Which)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	done, err := p.wait(ctx, run)
	if err == nil {
		p.printf("%s completed\n", printable.Line(done))
	}
	return p.explainInterrupt(run, err)
}

// wait waits for the run's job or launch, or for the jobs and launches of all trials of a sweep. It
// returns a description of what it waited for, or an error if a run did not finish.
func (p *program) wait(ctx context.Context, run runs.Run) (what string, err error) {
	if run.IsSweep() {
		return p.waitSweep(ctx, run)
	}
	if run, err = p.waitChain(ctx, run); err != nil {
		return "", err
	}
	ended, err := p.runStore().Wait(ctx, []runs.Run{run}, p.logStateChanges())
	if err != nil {
		return "", err
	}
	if len(ended) == 0 {
		_, err := run.Job()
		return "", err
	}
	return ended[0].String(), p.resultError(ended[0])
}

// waitChain waits for the last job of a chain. It returns the run with the last job that has trained,
// which determines the result.
func (p *program) waitChain(ctx context.Context, run runs.Run) (runs.Run, error) {
	n := len(run.Record.Chain)
	if n == 0 {
		return run, nil
	}
	last := runs.Run{Dir: run.Dir, Record: run.Record}
	last.Record.Submissions, last.Record.Chain = []rundir.Submission(run.Record.Chain[n-1:]), nil
	if states, err := p.slurm().State(ctx, last.Record.LastJob()); err == nil && (states[0].Done() || states[0].State == slurm.StateUnknown) {
		return run, nil // Slurm forgets a job a few minutes after its end
	}
	if _, err := p.runStore().Wait(ctx, []runs.Run{last}, p.logStateChanges()); err != nil {
		return run, err
	}
	return runs.Open(run.Dir.Path)
}

// logStateChanges returns a function that prints each change of a job's state until the job ends.
func (p *program) logStateChanges() func([]slurm.JobState) {
	last := ""
	return func(states []slurm.JobState) {
		if s := states[0]; s.String() != last && !s.Done() {
			p.note("job %s is %s", s.ID, s)
			last = s.String()
		}
	}
}

// waitSweep waits for all trials of a sweep. The error names the first trial that did not
// complete.
func (p *program) waitSweep(ctx context.Context, run runs.Run) (what string, err error) {
	trials, err := run.Trials()
	if err != nil {
		return "", err
	}
	last := ""
	note := func(states []slurm.JobState) {
		if text := runs.CountStates(states); text != last {
			p.note("%s: %s", run.Record.Name, text)
			last = text
		}
	}
	if trials, err = p.waitTrialChains(ctx, run, trials, note); err != nil {
		return "", err
	}
	ended, err := p.runStore().Wait(ctx, trials, note)
	if err != nil {
		return "", err
	}
	if len(ended) == 0 {
		return "", noTrialStarted(run)
	}
	var failed []error
	for _, e := range ended {
		if err := p.resultError(e); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return "", exitError{exitCode(failed[0]), hints.Errorf("`ddpbatch status "+shellQuote(p.short(run.Dir.Path))+"` shows all of them; `ddpbatch submit --failed` runs the failed ones again",
			"%d of %d trials did not complete; the first: %w", len(failed), len(ended), failed[0])}
	}
	return format.Count(len(ended), "trial"), nil
}

// waitTrialChains waits for the last jobs of the trials' chains. It returns the trials with the last
// jobs that have run.
func (p *program) waitTrialChains(ctx context.Context, run runs.Run, trials []runs.Run, note func([]slurm.JobState)) ([]runs.Run, error) {
	var chained []runs.Run
	for _, t := range trials {
		if n := len(t.Record.Chain); n > 0 {
			chained = append(chained, runs.Run{Dir: t.Dir, Record: rundir.Record{Name: t.Record.Name, Submissions: []rundir.Submission(t.Record.Chain[n-1:])}})
		}
	}
	if len(chained) == 0 {
		return trials, nil
	}
	states, err := p.runStore().JobStates(ctx, chained...)
	if err != nil {
		return nil, err
	}
	chained = slices.DeleteFunc(chained, func(r runs.Run) bool {
		s, ok := states[r.Record.LastJob()]
		return !ok || s.Done() || s.State == slurm.StateUnknown // Slurm forgets a job a few minutes after its end
	})
	if _, err := p.runStore().Wait(ctx, chained, note); err != nil {
		return nil, err
	}
	return run.Trials()
}

// noTrialStarted returns the error for a sweep without any started trial.
func noTrialStarted(run runs.Run) error {
	return exitError{exitUsage, fmt.Errorf("no trial of %q was submitted to Slurm or launched", run.Dir.Path)}
}
