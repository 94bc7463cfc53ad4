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
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type reportCmd struct {
	Which  string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID; also a sweep or one of its trials."`
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

For a sweep, it contains a table of the trials with their differences, their status,
and the best trial, followed by a section for each of the first 64 trials.`
}

func (c *reportCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil && run.Dir.Path == "" {
		return err
	}
	if err := run.CheckSweepSize(); err != nil {
		return err
	}
	if run.IsSweep() {
		s := runreport.CollectSweep(run.Dir, run.Record)
		s.Version = version()
		s.SetStatus(p.trialStates(ctx, run), time.Now())
		return c.write(p, run, s.HTML)
	}
	r := runreport.Collect(run.Dir)
	r.Version = version()
	if r.Name == "" {
		r.Name = p.short(run.Dir.Path)
	}
	r.SetStatus(p.jobState(ctx, run), time.Now())
	return c.write(p, run, r.HTML)
}

// write writes the report to the file in --output, or to standard output for "-".
func (c *reportCmd) write(p *program, run runs.Run, html func(io.Writer) error) error {
	if c.Output == "-" {
		return html(p.Stdout)
	}
	path := p.abs(c.Output)
	if err := createFile(path, modePrivate, c.Force, html); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return exitError{exitUsage, hints.Add(fmt.Errorf("report: %q already exists", path), "give another name with -o, or --force to replace it")}
		}
		return fmt.Errorf("report on %q: %w", run.Dir.Path, err)
	}
	p.printf("wrote %s\n", path)
	return nil
}

// trialStates returns Slurm's states of the last jobs of a sweep's trials, by job ID. The map is
// empty if Slurm does not respond.
func (p *program) trialStates(ctx context.Context, sweep runs.Run) map[string]slurm.JobState {
	trials, err := sweep.Trials()
	var states map[string]slurm.JobState
	if err == nil {
		states, err = p.runStore().JobStates(ctx, trials...)
	}
	if err != nil {
		p.note("the report omits Slurm's states of the trials: %v", err)
	}
	return states
}

// jobState returns Slurm's state of the run's last job. It returns nil if the run has no job,
// or if Slurm does not respond.
func (p *program) jobState(ctx context.Context, run runs.Run) *slurm.JobState {
	id := run.Record.LastJob()
	states, err := p.runStore().JobStates(ctx, run)
	if err != nil {
		p.note("the report omits Slurm's state of job %s: %v", id, err)
	}
	if state, ok := states[id]; ok {
		return &state
	}
	return nil
}
