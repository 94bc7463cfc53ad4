package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	runreport "github.com/ddpbatch/ddpbatch/jobs/report"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type reportCmd struct {
	Which  string `arg:"" name:"run" help:"Run directory, job file or job id."`
	Output string `short:"o" default:"report.html" placeholder:"FILE" help:"Where to; - is standard output."`
	Force  bool   `help:"Replace the file if it is there."`
}

func (c *reportCmd) Help() string {
	return `One page in one file, to read, print or send: loss and throughput, each rank's times,
the network and why, checkpoints, restarts and their causes, and what is needed to
do the run again. It loads nothing and runs no script. A run that is unfinished,
failed or damaged has a page, too, which says what is missing. It shows the job file
and the names of hosts, users and folders: look before you send it to others.`
}

func (c *reportCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil && run.dir.Path == "" {
		return err
	}
	if run.record.Sweep != nil {
		return exitError{exitUsage, hinted{fmt.Errorf("run directory %q is that of a sweep: each element has a report of its own", run.dir.Path),
			fmt.Sprintf("name one, such as %s/0; `ddpbatch status %s` compares them", c.Which, c.Which)}}
	}
	r := runreport.Collect(run.dir)
	r.Version = version()
	if r.Name == "" {
		r.Name = p.short(run.dir.Path)
	}
	r.Settle(p.jobState(ctx, run), time.Now())
	if c.Output == "-" {
		return r.HTML(p.Stdout)
	}
	path := p.abs(c.Output)
	if err := createFile(path, c.Force, func(w io.Writer) error { return r.HTML(w) }); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return exitError{exitUsage, hinted{fmt.Errorf("report: %q already exists", path), "give another name with -o, or --force to replace it"}}
		}
		return fmt.Errorf("report on %q: %w", run.dir.Path, err)
	}
	p.printf("wrote %s\n", path)
	return nil
}

// jobState is what Slurm says of the run's last job; nil where there is none, or it does
// not say.
func (p *program) jobState(ctx context.Context, run knownRun) *slurm.JobState {
	id := run.record.LastJob()
	if id == "" {
		return nil
	}
	states, err := p.slurmFor(run).State(ctx, id)
	if err != nil {
		p.note("the report is without what Slurm says of job %s: %v", id, err)
		return nil
	}
	return &states[0]
}
