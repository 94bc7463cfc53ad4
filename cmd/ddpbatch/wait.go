package main

import (
	"context"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type waitCmd struct {
	Which string `arg:"" name:"run" help:"Run directory, job file or job id."`
}

func (c *waitCmd) Help() string {
	return `The exit code is 0 if the job completed, and else says what kind of end it was.`
}

func (c *waitCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil {
		return err
	}
	id, err := run.job()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	return p.wait(ctx, run.dir, id)
}

// wait stays until the job is done, tells each change of its state, and returns
// its outcome.
func (p *program) wait(ctx context.Context, dir rundir.Dir, id string) error {
	last := ""
	s, err := p.slurm().Wait(ctx, id, func(s slurm.JobState) {
		if text := stateText(s); text != last && !s.Done() {
			p.note("job %s is %s", id, text)
			last = text
		}
	})
	if err != nil {
		return err
	}
	if err := p.outcome(dir, s); err != nil {
		return err
	}
	p.printf("job %s completed\n", id)
	return nil
}
