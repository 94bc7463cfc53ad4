package main

import (
	"context"
	"errors"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
)

type checkCmd struct {
	Jobs   []string `arg:"" name:"job.toml" help:"Job files."`
	RunDir string   `placeholder:"DIR" help:"Run directory whose checkpoints the job must be able to resume from (default: runs/NAME in the current directory)."`
	Set    []string `sep:"none" placeholder:"KEY=VALUE" help:"Override a key of the job files, such as train.batch=64. Repeatable."`
	JSON   bool     `help:"Print the result as JSON."`
}

func (c *checkCmd) Help() string {
	return `Checks every key. If all are valid, it also checks that the files that the job
names exist, that the site accepts the job, and that the job can resume from the
newest checkpoint in its run directory. Large data files themselves are not read,
and Slurm is not queried: "ddpbatch submit --test-only" does that.

For each valid job, it prints a summary in one line. Warnings about values that are
probably unintended do not change the exit code.`
}

// checkAnswer is the result for one file in the output of check --json.
type checkAnswer struct {
	File         string         `json:"file"`
	Good         bool           `json:"good"`
	Name         string         `json:"name,omitempty"`
	Site         string         `json:"site,omitempty"`
	Nodes        int            `json:"nodes,omitempty"`
	TasksPerNode int            `json:"tasks_per_node,omitempty"` // the largest number on a node
	RanksPerNode []int          `json:"ranks_per_node,omitempty"` // for different numbers on the nodes
	Ranks        int            `json:"ranks,omitempty"`
	Elements     int            `json:"elements,omitempty"` // number of trials, for sweeps
	Work         string         `json:"work,omitempty"`
	Mistakes     []checkMistake `json:"mistakes,omitempty"`
	Warnings     []string       `json:"warnings,omitempty"` // values that are valid but probably unintended
}

type checkMistake struct {
	Line       int    `json:"line,omitempty"`
	Column     int    `json:"column,omitempty"`
	Key        string `json:"key,omitempty"`
	Message    string `json:"message"`
	Allowed    string `json:"allowed,omitempty"`
	Suggestion string `json:"suggestion,omitempty"`
}

func (c *checkCmd) Run(_ context.Context, p *program) error {
	if c.RunDir != "" && len(c.Jobs) > 1 {
		return usage("--run-dir requires a single job file")
	}
	var answers []checkAnswer
	bad := 0
	for _, path := range c.Jobs {
		var dir rundir.Dir
		f, err := p.load(path, c.Set...)
		if err == nil {
			dir = p.runDir(c.RunDir, f.Job, f.Base)
			err = submit.CheckResume(dir, f.Job, f.Base)
		}
		if err != nil {
			bad++
			report(p.Stderr, err, "")
			answers = append(answers, checkAnswer{File: path, Mistakes: checkMistakes(err)})
			continue
		}
		a := checkAnswer{File: path, Good: true, Name: string(f.Job.Name), Site: f.Job.Site, Nodes: f.Job.Slurm.Nodes,
			TasksPerNode: f.Job.TasksPerNode(), RanksPerNode: f.Job.Slurm.RanksPerNode, Ranks: f.Job.Ranks(), Work: f.Work(), Warnings: append(warningTexts(f.Warnings), exposures(dir, true)...)}
		if f.Job.Sweep != nil {
			a.Elements = len(f.Job.Sweep.Trials)
		}
		answers = append(answers, a)
		if !c.JSON {
			p.printf("%s: valid: %s: %s\n", path, a.Name, f.Summary())
			p.printWarnings(f, false)
			p.warnOfExposure(dir, true)
		}
	}
	if c.JSON {
		if err := p.printJSON(answers); err != nil {
			return err
		}
	}
	if bad > 0 {
		return exitError{exitUsage, nil}
	}
	return nil
}

// warningTexts returns the warnings as text for --json.
func warningTexts(all jobs.Diagnostics) (texts []string) {
	for _, d := range all {
		texts = append(texts, warningText(d))
	}
	return texts
}

func checkMistakes(err error) []checkMistake {
	var spec jobs.Diagnostics
	if !errors.As(err, &spec) {
		return []checkMistake{{Message: err.Error()}}
	}
	out := make([]checkMistake, len(spec))
	for i, d := range spec {
		out[i] = checkMistake{d.Line, d.Column, d.Key, d.Message, d.Allowed, d.Suggestion}
	}
	return out
}
