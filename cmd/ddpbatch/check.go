package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/slurm"
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
			dir = p.runDir(c.RunDir, f.job, f.base)
			err = submit.CheckResume(dir, f.job, f.base)
		}
		if err != nil {
			bad++
			report(p.Stderr, err, "")
			answers = append(answers, checkAnswer{File: path, Mistakes: checkMistakes(err)})
			continue
		}
		a := checkAnswer{File: path, Good: true, Name: string(f.job.Name), Site: f.job.Site, Nodes: f.job.Slurm.Nodes,
			TasksPerNode: f.job.TasksPerNode(), RanksPerNode: f.job.Slurm.RanksPerNode, Ranks: f.job.Ranks(), Work: describeWork(f.job), Warnings: append(warningTexts(f.warnings), exposures(dir, true)...)}
		if f.job.Sweep != nil {
			a.Elements = len(f.job.Sweep.Trials)
		}
		answers = append(answers, a)
		if !c.JSON {
			p.printf("%s: valid: %s: %s\n", path, a.Name, summarize(f))
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

// summarize describes a job in one line: its size, its limits, and its program or model.
func summarize(f *jobFile) string {
	j := f.job
	s := j.Slurm
	unit := "rank"
	if j.RunsOnce() {
		unit = "task"
	}
	var sizes []string
	for _, part := range j.SplitGroups() {
		sizes = append(sizes, describeNodes(&part.Slurm, unit))
	}
	size := strings.Join(sizes, " + ")
	switch {
	case j.RunsOnce():
		size += " (1 process)"
	case s.Nodes > 1 || s.GPUsPerNode > 0:
		size += fmt.Sprintf(" (%s)", format.Count(j.Ranks(), "rank"))
	}
	var parts []string
	if j.Sweep != nil {
		size = format.Count(len(j.Sweep.Trials), "trial") + ", each " + size
	}
	parts = append(parts, size)
	add := func(key, text string) {
		if !j.IsSet(key) {
			text += " (site default)"
		}
		parts = append(parts, text)
	}
	if s.Time != "" {
		add("slurm.time", jobs.FormatWallTime(s.Time.Duration()))
	}
	if s.Partition != "" {
		add("slurm.partition", "partition "+string(s.Partition))
	}
	return strings.Join(append(parts, describeWork(j)), ", ")
}

// describeNodes describes nodes and what they run. unit is "rank" or "task".
func describeNodes(s *jobs.Slurm, unit string) string {
	nodes, tasks := format.Count(s.Nodes, "node"), format.Count(s.TasksPerNode, unit)
	size := nodes + " x " + tasks
	if s.GPUsPerNode > 0 {
		size = fmt.Sprintf("%s x %s", nodes, format.Count(s.GPUsPerNode, strings.TrimSpace(s.GPUType+" GPU")))
	}
	switch list := s.RanksPerNode; {
	case len(list) > 0 && s.GPUsPerNode == 0:
		return fmt.Sprintf("%s with %s %ss", nodes, slurm.FoldTasksPerNode(list), unit)
	case len(list) > 0:
		return fmt.Sprintf("%s with %s %ss", size, slurm.FoldTasksPerNode(list), unit)
	case s.GPUsPerNode > 0 && s.GPUsPerNode != s.TasksPerNode:
		size += fmt.Sprintf(", %s each", tasks)
	}
	return size
}

// warningTexts returns the warnings as text for --json.
func warningTexts(all jobs.Diagnostics) (texts []string) {
	for _, d := range all {
		texts = append(texts, warningText(d))
	}
	return texts
}

// describeWork returns a short description of what a job runs.
func describeWork(j *jobs.Job) string {
	if j.Command != nil {
		return "runs " + commandLine(j.Command) + describeComponents(j.Components)
	}
	data := string(j.Train.Data.Path)
	if data == "" {
		data = fmt.Sprintf("%s data", j.Train.Data.Kind)
	}
	return fmt.Sprintf("trains %s on %s for %s", j.Train.Model.Kind, data, format.Count(j.Train.Epochs, "epoch"))
}

// describeComponents returns the names of the components, such as ` with component "server"`.
func describeComponents(all []jobs.Component) string {
	if len(all) == 0 {
		return ""
	}
	var names []string
	for _, c := range all {
		names = append(names, string(c.Name))
	}
	noun := "component"
	if len(all) > 1 {
		noun = "components"
	}
	return fmt.Sprintf(" with %s %s", noun, strings.Join(names, ", "))
}

// maxCommandLine is the maximum number of characters of a command line in the output of check.
// Inline code for an interpreter can be much longer.
const maxCommandLine = 200

// commandLine returns the launcher's command line for a job, in shell syntax.
func commandLine(c *jobs.Command) string {
	var words []string
	for _, word := range c.Argv {
		words = append(words, string(word))
	}
	interpreter := ""
	if c.Launcher == jobs.LauncherTorchrun {
		if python, argv, err := c.TorchrunArgv(); err == nil {
			words, interpreter = append([]string{"torchrun"}, argv...), python
		}
	}
	for i, word := range words {
		words[i] = shellQuote(word)
	}
	line := []rune(strings.Join(words, " "))
	text := string(line)
	if len(line) > maxCommandLine {
		text = string(line[:maxCommandLine]) + "…"
	}
	if interpreter != "" {
		text += " with " + shellQuote(interpreter)
	}
	return text
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
