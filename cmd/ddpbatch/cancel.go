package main

import (
	"context"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

type cancelCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID; also a sweep or one of its trials."`
}

func (c *cancelCmd) Help() string {
	return `If you submit the run again, it resumes from its last checkpoint. You can cancel only
your own runs, and only jobs that were submitted from their run directories: the
comment or the batch script of the job must identify the submission. Use scancel for
other jobs.

For a run that was launched without Slurm, the command requests that the launcher save
and stop. Run the command on the host of the launcher. A second cancel stops the ranks
immediately.`
}

func (c *cancelCmd) Run(ctx context.Context, p *program) error {
	store := p.runStore()
	run, err := store.FindWithJob(ctx, c.Which)
	if err != nil {
		return err
	}
	run, release, err := run.OpenOwn()
	if err != nil {
		return err
	}
	defer release()
	if run.IsSweep() {
		return p.cancelSweep(ctx, store, run)
	}
	if run.IsLaunched() {
		return p.cancelLaunch(run)
	}
	chain, err := store.CancelChain(ctx, run)
	if len(chain) > 0 {
		p.printf("requested that Slurm cancel the chained %s (%s)\n", jobList(chain), printable.Line(run.Record.Name))
	}
	if err != nil {
		return err
	}
	ended, err := store.CancelJob(ctx, run)
	if err != nil {
		return err
	}
	id, name := run.Record.LastJob(), printable.Line(run.Record.Name)
	if ended != nil {
		p.printf("job %s (%s) has already ended: %s\n", id, name, ended)
		return nil
	}
	p.printf("requested that Slurm cancel job %s (%s)\n", id, name)
	return nil
}

// jobList returns a text such as "jobs 13, 14".
func jobList(ids []string) string {
	if len(ids) == 1 {
		return "job " + ids[0]
	}
	return "jobs " + strings.Join(ids, ", ")
}

// cancelLaunch requests that the launcher of a run save and stop. A second call for the same launch
// makes the launcher kill its ranks.
func (p *program) cancelLaunch(run runs.Run) error {
	canceled, err := run.CancelLaunch()
	if err != nil {
		return err
	}
	name, path := printable.Line(run.Record.Name), shellQuote(p.short(run.Dir.Path))
	switch {
	case canceled.End != nil:
		p.printf("run %s %s\n", name, canceled.End)
	case canceled.Killed:
		p.printf("requested that the launcher of run %s (process %d) kill its ranks immediately\n", name, canceled.PID)
	default:
		p.printf("requested that the launcher of run %s (process %d) save and stop\n", name, canceled.PID)
		p.note("to wait for its end, run `ddpbatch wait %s`; to kill it immediately, run `ddpbatch cancel %s` again", path, path)
	}
	return nil
}

// cancelSweep cancels all active trials of a sweep.
func (p *program) cancelSweep(ctx context.Context, store *runs.Store, run runs.Run) error {
	trials, err := run.Trials()
	if err != nil {
		return err
	}
	submitted, launched := runs.SplitByStart(trials)
	active := 0
	for _, trial := range launched {
		if _, over := trial.LaunchEnd(time.Now()); over {
			continue
		}
		active++
		if err := p.cancelLaunch(trial); err != nil {
			return err
		}
	}
	if len(submitted) == 0 && active > 0 {
		return nil
	}
	arrays, err := store.CancelTrials(ctx, submitted)
	for _, a := range arrays {
		p.printf("requested that Slurm cancel job %s (%s of %s)\n", a.ID, format.Count(a.Trials, "trial"), printable.Line(run.Record.Name))
	}
	if err == nil && len(arrays) == 0 && active == 0 {
		p.printf("no trial of %s is queued or running\n", printable.Line(run.Record.Name))
	}
	return err
}
