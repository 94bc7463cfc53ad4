package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
)

type checkCmd struct {
	Jobs   []string `arg:"" name:"job.toml" help:"Job files."`
	RunDir string   `placeholder:"DIR" help:"Run directory whose checkpoints the job must be able to resume from (default: runs/NAME)."`
	Set    []string `sep:"none" placeholder:"KEY=VALUE" help:"A value that stands over the files', such as train.batch=64; may be repeated."`
	JSON   bool     `help:"Print the answer as JSON."`
}

func (c *checkCmd) Help() string {
	return `Checks every key. If all are valid, it also checks that the files that the job
names exist, that the site accepts the job, and that the job can resume from the
newest checkpoint in its run directory. Data files themselves are not read, and
Slurm is not queried: "ddpbatch submit --test-only" does that.`
}

// checkAnswer is what check --json says of one file.
type checkAnswer struct {
	File         string         `json:"file"`
	Good         bool           `json:"good"`
	Name         string         `json:"name,omitempty"`
	Site         string         `json:"site,omitempty"`
	Nodes        int            `json:"nodes,omitempty"`
	TasksPerNode int            `json:"tasks_per_node,omitempty"`
	Ranks        int            `json:"ranks,omitempty"`
	Elements     int            `json:"elements,omitempty"` // of a sweep
	Work         string         `json:"work,omitempty"`
	Mistakes     []checkMistake `json:"mistakes,omitempty"`
	Warnings     []string       `json:"warnings,omitempty"` // what only the nodes can tell
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
		return usage("--run-dir is for a single job file")
	}
	var answers []checkAnswer
	bad := 0
	for _, path := range c.Jobs {
		f, err := p.load(path, c.Set...)
		if err == nil {
			err = submit.CheckResume(p.runDir(c.RunDir, f.job), f.job, f.base)
		}
		if err != nil {
			bad++
			report(p.Stderr, err, "")
			answers = append(answers, checkAnswer{File: path, Mistakes: mistakes(err)})
			continue
		}
		a := checkAnswer{File: path, Good: true, Name: string(f.job.Name), Site: f.job.Site, Nodes: int(f.job.Slurm.Nodes),
			TasksPerNode: f.job.TasksPerNode(), Ranks: f.job.Ranks(), Work: work(f.job), Warnings: unsure(f.job)}
		if f.job.Sweep != nil {
			a.Elements = len(f.job.Sweep.Elements)
		}
		answers = append(answers, a)
		if !c.JSON {
			each := ""
			if a.Elements > 0 {
				each = count(a.Elements, "element") + ", each "
			}
			p.printf("%s: good: %s: %s%s on %s, %s\n", path, a.Name, each, count(a.Ranks, "rank"), count(a.Nodes, "node"), a.Work)
			for _, w := range a.Warnings {
				p.note("WARNING: %s: %s", path, w)
			}
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

// mpiTypes are what srun --mpi takes of Slurm's own plugins and Cray's; the versions of
// PMIx are pmix_v3 and so on.
var mpiTypes = []string{"none", "pmi2", "pmix", "cray_shasta", "openmpi"}

// unsure is what looks wrong from here and may be right on the nodes.
func unsure(j *jobs.Job) (warnings []string) {
	if m := string(j.Slurm.MPI); m != "" && !slices.Contains(mpiTypes, m) && !strings.HasPrefix(m, "pmix_v") {
		warnings = append(warnings, fmt.Sprintf("slurm.mpi: %q is none of %s; \"srun --mpi=list\" on the cluster shows what there is", m, strings.Join(mpiTypes, ", ")))
	}
	if l := string(j.Network.MPILibrary); strings.HasPrefix(l, "/") {
		if _, err := os.Stat(l); err != nil {
			warnings = append(warnings, fmt.Sprintf("network.mpi_library: %q is not here, and must be on the nodes: %v", l, err))
		}
	}
	return warnings
}

// work says in a few words what a job does.
func work(j *jobs.Job) string {
	if j.Command != nil {
		words := make([]string, len(j.Command.Argv))
		for i, a := range j.Command.Argv {
			words[i] = shellQuote(string(a))
		}
		line := strings.Join(words, " ")
		if j.Command.Launcher == jobs.LauncherTorchrun {
			line = "torchrun " + line
		}
		return "runs " + line
	}
	data := string(j.Train.Data.Path)
	if data == "" {
		data = fmt.Sprintf("%s data", j.Train.Data.Kind)
	}
	return fmt.Sprintf("trains %s on %s for %s", j.Train.Model.Kind, data, count(int(j.Train.Epochs), "epoch"))
}

func mistakes(err error) []checkMistake {
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
