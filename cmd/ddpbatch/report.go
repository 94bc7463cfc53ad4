package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	runreport "github.com/ddpbatch/ddpbatch/jobs/report"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type reportCmd struct {
	Which  string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID; also a sweep or one of its elements."`
	Output string `short:"o" default:"report.html" placeholder:"FILE" help:"File to write, or - for standard output (default: ${default})."`
	Force  bool   `help:"Replace the file if it exists."`
}

func (c *reportCmd) Help() string {
	return `The report is a single HTML file. It contains loss and throughput, the times of each
rank, the network and the reason for its selection, checkpoints, restarts with their
causes, and the data that is needed to repeat the run. It loads no other files and
runs no scripts. For an unfinished, failed, or corrupt run, it lists what is missing.
It contains the job file and the names of hosts, users, and directories: check it
before you send it to others.

For a sweep, it contains a table of the elements with their differences, their status,
and the best element, followed by a section for each of the first 64 elements.`
}

func (c *reportCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil && run.dir.Path == "" {
		return err
	}
	if run.record.Sweep != nil {
		s := runreport.CollectSweep(run.dir, run.record)
		s.Version = version()
		s.SetStatus(p.elementStates(ctx, run), time.Now())
		return c.write(p, run, s.HTML)
	}
	r := runreport.Collect(run.dir)
	r.Version = version()
	if r.Name == "" {
		r.Name = p.short(run.dir.Path)
	}
	r.SetStatus(p.jobState(ctx, run), time.Now())
	return c.write(p, run, r.HTML)
}

// write writes the report to the file in --output, or to standard output for "-".
func (c *reportCmd) write(p *program, run knownRun, html func(io.Writer) error) error {
	if c.Output == "-" {
		return html(p.Stdout)
	}
	path := p.abs(c.Output)
	if err := createFile(path, modePrivate, c.Force, html); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return exitError{exitUsage, hints.Add(fmt.Errorf("report: %q already exists", path), "give another name with -o, or --force to replace it")}
		}
		return fmt.Errorf("report on %q: %w", run.dir.Path, err)
	}
	p.printf("wrote %s\n", path)
	return nil
}

// elementStates returns Slurm's states of the last jobs of a sweep's trials, by job ID. The
// map is empty if Slurm does not respond.
func (p *program) elementStates(ctx context.Context, sweep knownRun) map[string]slurm.JobState {
	elements, err := sweep.elements()
	var ids []string
	for _, e := range elements {
		if id := e.record.LastJob(); id != "" {
			ids = append(ids, id)
		}
	}
	var states []slurm.JobState
	if err == nil && len(ids) > 0 {
		states, err = p.slurmFor(elements...).State(ctx, ids...)
	}
	if err != nil {
		p.note("the report is without what Slurm says of the elements: %v", err)
	}
	by := map[string]slurm.JobState{}
	for i, s := range states {
		by[ids[i]] = s
	}
	return by
}

// jobState returns Slurm's state of the run's last job. It returns nil if the run has no job,
// or if Slurm does not respond.
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
