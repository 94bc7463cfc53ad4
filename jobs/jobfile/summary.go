package jobfile

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// Summary describes the job in one line: its size, its limits, and its program or model.
func (f *File) Summary() string {
	j := f.Job
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
	return strings.Join(append(parts, f.Work()), ", ")
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

// Work returns a short description of what the job runs.
func (f *File) Work() string {
	j := f.Job
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
	words := jobs.Strings(c.Argv)
	interpreter := ""
	if c.Launcher == jobs.LauncherTorchrun {
		if python, argv, err := c.TorchrunArgv(); err == nil {
			words, interpreter = append([]string{"torchrun"}, argv...), python
		}
	}
	for i, word := range words {
		words[i] = jobs.ShellQuote(word)
	}
	line := []rune(strings.Join(words, " "))
	text := string(line)
	if len(line) > maxCommandLine {
		text = string(line[:maxCommandLine]) + "…"
	}
	if interpreter != "" {
		text += " with " + jobs.ShellQuote(interpreter)
	}
	return text
}
