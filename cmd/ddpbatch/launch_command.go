package main

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// commandFile is the name of the job file in messages about a command without a job file.
const commandFile = "command line"

// cutCommand splits the arguments of `ddpbatch launch [flags] -- CMD ARGS` at the first "--". It does
// not split the arguments of other commands.
func cutCommand(args []string) (own, command []string, found bool) {
	if len(args) == 0 || args[0] != "launch" {
		return args, nil, false
	}
	i := slices.Index(args, "--")
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

// hasLayoutFlags reports whether a flag is set that describes a job without a job file.
func (c *launchCmd) hasLayoutFlags() bool {
	return c.Name != "" || c.Nodes > 0 || c.Total > 0 || c.TasksPerNode > 0 || c.CPUsPerTask > 0 || c.Launcher != "" || c.Site != "" || c.Image != "" ||
		c.Mounts != "" || len(c.SrunOptions) > 0
}

// checkCommand returns an error if the flags, the job file, and the command after "--" are not valid
// together.
func (c *launchCmd) checkCommand(p *program) error {
	switch {
	case p.Command == nil && c.hasLayoutFlags():
		return usage("--name, --nodes, --ntasks, --tasks-per-node, --cpus-per-task, --launcher, --site, --container-image, --container-mounts, and --srun-option require a command after --; use --set to override a key of the job file")
	case p.Command == nil:
		return nil
	case len(p.Command) == 0:
		return usage("give a command after --, such as ddpbatch launch -- python3 train.py")
	case c.Job != "" && c.hasLayoutFlags():
		return usage("the job file describes the job: use --set to override its keys")
	case c.Digest != "":
		return usage("--digest is not valid with a command, only for a submitted job")
	case c.Nodes < 0 || c.Total < 0 || c.TasksPerNode < 0 || c.CPUsPerTask < 0:
		return usage("--nodes, --ntasks, --tasks-per-node, and --cpus-per-task must be at least 1")
	case c.Mounts != "" && c.Image == "":
		return usage("--container-mounts requires --container-image")
	case slices.ContainsFunc(p.Command, func(a string) bool { return !utf8.ValidString(a) }):
		return usage("the command after -- contains text that is not UTF-8")
	case c.Job == "" && len(p.Command) == 1 && strings.HasSuffix(p.Command[0], ".toml"):
		return usage("the command after -- is a job file: write it before --")
	}
	return nil
}

// loadJob loads the job file, with the command after "--" as its command if there is one, or the
// job of a command without a job file.
func (c *launchCmd) loadJob(p *program, a *slurm.Allocation) (*jobFile, error) {
	switch {
	case c.Job == "":
		return c.commandJob(p, a)
	case p.Command != nil:
		return p.load(c.Job, append(slices.Clone(c.Set), "command.argv="+tomlList(p.Command))...)
	}
	return p.load(c.Job, c.Set...)
}

// commandJob returns the job for a command without a job file. Its values come from the flags,
// and from the allocation if there is one.
func (c *launchCmd) commandJob(p *program, a *slurm.Allocation) (*jobFile, error) {
	if p.dirNeeded = p.dirNeeded || p.Dir == ""; p.Dir == "" {
		return nil, usage("a command without a job file needs the current directory")
	}
	var groups []jobs.Group
	var ranks []int
	var err error
	if a != nil && len(a.Components) > 0 {
		groups, err = c.groups(p, a)
		ranks = []int{1}
	} else {
		ranks, err = c.layout(p, a)
	}
	if err != nil {
		return nil, err
	}
	most := slices.Max(ranks)
	var b strings.Builder
	key := func(name, value string) { fmt.Fprintf(&b, "%s = %s\n", name, value) }
	key("name", tomlString(c.commandName(p)))
	if c.Site != "" {
		key("site", tomlString(c.Site))
	}
	b.WriteString("[slurm]\n")
	switch {
	case groups != nil:
	case slices.Min(ranks) == most:
		key("nodes", strconv.Itoa(len(ranks)))
		key("tasks_per_node", strconv.Itoa(most))
	default:
		key("ranks_per_node", strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "))
	}
	if a != nil && groups == nil {
		key("cpus_per_task", strconv.Itoa(c.cpus(p, a, ranks)))
		if gpus := countVariable(p, "SLURM_GPUS_ON_NODE"); gpus > 0 && gpus%most == 0 {
			key("gpus_per_node", strconv.Itoa(gpus))
		}
	}
	if len(c.SrunOptions) > 0 {
		key("step_options", tomlList(c.SrunOptions))
	}
	for _, g := range groups {
		b.WriteString("[[slurm.group]]\n")
		key("nodes", strconv.Itoa(g.Nodes))
		key("tasks_per_node", strconv.Itoa(g.TasksPerNode))
		key("cpus_per_task", strconv.Itoa(g.CPUsPerTask))
	}
	if c.Image != "" {
		b.WriteString("[setup.container]\n")
		key("image", tomlString(c.Image))
		if c.Mounts != "" {
			key("mounts", tomlList(strings.Split(c.Mounts, ",")))
		}
	}
	b.WriteString("[command]\n")
	key("argv", tomlList(p.Command))
	if c.Launcher != "" {
		key("launcher", tomlString(c.Launcher))
	}
	return p.parse(commandFile, []byte(b.String()), p.Dir, c.Set...)
}

// tomlString returns a text as a TOML string. A control character, which no key accepts, is
// escaped.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func tomlList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = tomlString(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// commandName returns the name of the run: --name, the name of the Slurm job, or the name of the
// program.
func (c *launchCmd) commandName(p *program) string {
	if c.Name != "" {
		return c.Name
	}
	if name, ok := p.lookup("SLURM_JOB_NAME"); ok && !slices.Contains([]string{"", "bash", "sh", "interactive", "wrap"}, name) && isName(name) {
		return name
	}
	name := p.Command[0]
	if base := path.Base(name); strings.HasPrefix(base, "python") || base == "torchrun" || base == "accelerate" || base == "bash" {
		for _, a := range p.Command[1:] {
			if strings.HasSuffix(a, ".py") || strings.HasSuffix(a, ".sh") {
				name = a
				break
			}
		}
	}
	name = path.Base(name)
	name = strings.TrimSuffix(name, path.Ext(name))
	if !isName(name) {
		return "job"
	}
	return name
}

func isName(s string) bool {
	var n jobs.Name
	return n.UnmarshalTOML(s) == nil
}

// countVariable returns the number in an environment variable, or 0.
func countVariable(p *program, name string) int {
	value, _ := p.lookup(name)
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// layout returns the number of ranks on each node. Inside an allocation, the default is srun's: the
// tasks of the job, or one on each node.
func (c *launchCmd) layout(p *program, a *slurm.Allocation) (ranks []int, err error) {
	torchrun := c.Launcher == string(jobs.LauncherTorchrun)
	if a == nil {
		if c.Nodes > 1 || c.CPUsPerTask > 0 || c.Total > 0 && c.TasksPerNode > 0 && c.Total != c.TasksPerNode {
			return nil, usage("without a Slurm allocation, all ranks run on this machine: use -n, and neither --nodes nor --cpus-per-task")
		}
		total := max(1, c.Total)
		if c.Ranks != nil {
			total = *c.Ranks
		}
		if c.TasksPerNode > 0 {
			total = c.TasksPerNode
		}
		return []int{total}, nil
	}
	nodes := len(a.Nodes)
	if c.Nodes > nodes {
		return nil, exitError{exitUsage, hints.Add(fmt.Errorf("start ranks on %d nodes: the job has %s", c.Nodes, format.Count(nodes, "node")), "use a smaller --nodes")}
	}
	if c.Nodes > 0 {
		nodes = c.Nodes
	}
	total := c.Total
	switch {
	case c.TasksPerNode > 0 && (total == 0 || total == nodes*c.TasksPerNode):
		return slices.Repeat([]int{c.TasksPerNode}, nodes), nil
	case c.TasksPerNode > 0 && total%c.TasksPerNode == 0 && total/c.TasksPerNode <= nodes:
		return slices.Repeat([]int{c.TasksPerNode}, total/c.TasksPerNode), nil
	case c.TasksPerNode > 0 && total > nodes*c.TasksPerNode:
		return nil, exitError{exitUsage, hints.Add(fmt.Errorf("start %s on %s: --tasks-per-node is %d", format.Count(total, "rank"), format.Count(nodes, "node"), c.TasksPerNode),
			"use a smaller --ntasks")}
	case torchrun && total == 0:
		return slices.Repeat([]int{max(1, countVariable(p, "SLURM_GPUS_ON_NODE"))}, nodes), nil
	}
	ofJob := jobTasks(p, a)
	if total == 0 {
		if total = countVariable(p, "SLURM_NTASKS"); total == 0 {
			total = sumOf(ofJob)
		}
		if c.Nodes > 0 && total%nodes != 0 {
			total = nodes
		}
	}
	if total == sumOf(ofJob) && nodes == len(a.Nodes) && c.TasksPerNode == 0 {
		return ofJob, nil
	}
	if total < nodes {
		nodes = total // as with srun --ntasks
	}
	return c.spread(p, a, total, nodes), nil
}

// groups returns the nodes of the components of a heterogeneous job, with the tasks and the cores that
// each of them requests.
func (c *launchCmd) groups(p *program, a *slurm.Allocation) (groups []jobs.Group, err error) {
	fail := func(hint, format string, args ...any) ([]jobs.Group, error) {
		return nil, exitError{exitUsage, hints.Errorf(hint, format, args...)}
	}
	if c.Nodes > 0 || c.Total > 0 || c.Launcher == string(jobs.LauncherTorchrun) && c.TasksPerNode == 0 {
		return fail("use --tasks-per-node, or a job file with [[slurm.group]]", "the job has %d components, which --nodes, --ntasks, and the GPUs of one node do not describe", len(a.Components))
	}
	tasks, cores := jobTasks(p, a), allCores(p, a)
	first := 0
	for i, component := range a.Components {
		own := tasks[first : first+len(component.Nodes)]
		if c.TasksPerNode > 0 {
			own = []int{c.TasksPerNode}
		}
		g := jobs.Group{Nodes: len(component.Nodes), TasksPerNode: own[0]}
		if slices.Max(own) != slices.Min(own) {
			return fail("set --tasks-per-node, or use a job file with [[slurm.group]]", "component %d of the job has different numbers of tasks on its nodes: %s", i, slurm.FoldTasksPerNode(own))
		}
		switch n := countVariable(p, componentVariable(a, "SLURM_CPUS_PER_TASK", i)); {
		case c.CPUsPerTask > 0:
			g.CPUsPerTask = c.CPUsPerTask
		case n > 0:
			g.CPUsPerTask = n
		case cores != nil:
			g.CPUsPerTask = slices.Min(cores[first:first+len(component.Nodes)]) / g.TasksPerNode
		}
		g.CPUsPerTask = max(1, g.CPUsPerTask)
		groups, first = append(groups, g), first+len(component.Nodes)
	}
	return groups, nil
}

func sumOf(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}

// jobTasks returns the tasks of the job on each node of the allocation. A job without a number of
// tasks has one task on each node.
func jobTasks(p *program, a *slurm.Allocation) (tasks []int) {
	for i, nodes := range componentNodes(a) {
		// Slurm also sets SLURM_TASKS_PER_NODE if the job requests cores only. Since 24.05, components
		// with a number of tasks per node do not have a total.
		own := nodeNumbers(p, a, "SLURM_TASKS_PER_NODE", i, nodes)
		total := countVariable(p, componentVariable(a, "SLURM_NTASKS", i))
		perNode := countVariable(p, componentVariable(a, "SLURM_NTASKS_PER_NODE", i))
		switch {
		case total > 0 && total == sumOf(own):
		case total > 0 && total%nodes == 0:
			own = slices.Repeat([]int{total / nodes}, nodes)
		default:
			own = slices.Repeat([]int{max(1, perNode)}, nodes)
		}
		tasks = append(tasks, own...)
	}
	return tasks
}

// componentNodes returns the number of nodes of each component of the allocation. A job that is not
// heterogeneous has one component.
func componentNodes(a *slurm.Allocation) (nodes []int) {
	for _, c := range a.Components {
		nodes = append(nodes, len(c.Nodes))
	}
	if nodes == nil {
		nodes = []int{len(a.Nodes)}
	}
	return nodes
}

// componentVariable returns the name of a variable for a component of a heterogeneous job.
func componentVariable(a *slurm.Allocation, name string, component int) string {
	if len(a.Components) > 0 {
		name += "_HET_GROUP_" + strconv.Itoa(component)
	}
	return name
}

// nodeNumbers returns the numbers in a variable such as SLURM_JOB_CPUS_PER_NODE, for the nodes of a
// component. It returns nil if the variable does not have a number for each node.
func nodeNumbers(p *program, a *slurm.Allocation, name string, component, nodes int) []int {
	text, _ := p.lookup(componentVariable(a, name, component))
	list, err := slurm.ParseTasksPerNode(text)
	if err != nil || len(list) != nodes {
		return nil
	}
	return list
}

// spread divides ranks among the first nodes of the allocation as srun does: in turn, while a node
// has cores for another rank.
func (c *launchCmd) spread(p *program, a *slurm.Allocation, total, nodes int) []int {
	ranks := slices.Repeat([]int{1}, nodes)
	limits := slices.Repeat([]int{total}, nodes)
	if c.TasksPerNode > 0 {
		limits = slices.Repeat([]int{c.TasksPerNode}, nodes)
	}
	cores, each := allCores(p, a), max(1, c.CPUsPerTask, countVariable(p, "SLURM_CPUS_PER_TASK"))
	if c.CPUsPerTask > 0 {
		each = c.CPUsPerTask
	}
	if slots := sumOf(cores[:min(nodes, len(cores))]) / each; len(cores) >= nodes && slots >= total {
		for i := range limits {
			limits[i] = min(limits[i], max(1, cores[i]/each))
		}
	}
	if sumOf(limits) < total { // srun reports that the cores do not suffice
		limits = slices.Repeat([]int{total}, nodes)
	}
	for i, left := 0, total-nodes; left > 0; i = (i + 1) % nodes {
		if ranks[i] < limits[i] {
			ranks[i]++
			left--
		}
	}
	return ranks
}

// allCores returns the cores of each node of the allocation, or nil if they are not known.
func allCores(p *program, a *slurm.Allocation) (cores []int) {
	for i, nodes := range componentNodes(a) {
		own := nodeNumbers(p, a, "SLURM_JOB_CPUS_PER_NODE", i, nodes) // such as 72(x2),36
		if own == nil {
			return nil
		}
		cores = append(cores, own...)
	}
	return cores
}

// cpus returns the cores per rank: --cpus-per-task, the value of the job, or the cores of the nodes
// divided among their ranks.
func (c *launchCmd) cpus(p *program, a *slurm.Allocation, ranks []int) int {
	if c.CPUsPerTask > 0 {
		return c.CPUsPerTask
	}
	if n := countVariable(p, "SLURM_CPUS_PER_TASK"); n > 0 {
		return n
	}
	smallest := 0
	for i, n := range allCores(p, a) {
		if i < len(ranks) && (smallest == 0 || n/ranks[i] < smallest) {
			smallest = n / ranks[i]
		}
	}
	return max(1, smallest)
}

// maxCommandRuns is the maximum number of runs of one command in one job, and of runs with one
// name outside of Slurm.
const maxCommandRuns = 10000

// commandDir creates the run directory of a command without a job file: runs/NAME-JOBID inside
// a job and runs/NAME otherwise. A script can start several commands, also at the same time. If the
// directory exists, commandDir appends a number. Creating the directory reserves its name.
func (p *program) commandDir(name, jobID string) (string, error) {
	if jobID != "" {
		name += "-" + jobID
	}
	parent := p.abs(runs.DefaultDir)
	for i := 1; i <= maxCommandRuns; i++ {
		dir := filepath.Join(parent, name)
		if i > 1 {
			dir += "-" + strconv.Itoa(i)
		}
		if created, err := rundir.Reserve(dir); created || err != nil {
			return dir, err
		}
	}
	return "", hints.Add(fmt.Errorf("%d runs are named %q in %q", maxCommandRuns, name, parent), "choose a name with --name, or delete old runs")
}
