package main

import "context"

type cancelCmd struct {
	Which string `arg:"" name:"run" help:"Run directory, job file or job id."`
}

func (c *cancelCmd) Help() string {
	return `The run can be submitted again and goes on from its last checkpoint. Only jobs that
were submitted by ddpbatch are ended; for others there is scancel.`
}

func (c *cancelCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil {
		return err
	}
	id, err := run.job()
	if err != nil {
		return err
	}
	if err := p.slurm().Cancel(ctx, id); err != nil {
		return err
	}
	p.printf("asked Slurm to end job %s (%s)\n", id, run.record.Name)
	return nil
}
