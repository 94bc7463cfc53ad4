package adhoc

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// ranks returns the number of ranks on each node. Inside an allocation, the default is srun's: the
// tasks of the job, or one on each node.
func (c Command) ranks(e environment) ([]int, error) {
	if e.allocation == nil {
		return []int{cmp.Or(c.TasksPerNode, c.Tasks, 1)}, nil
	}
	all := len(e.allocation.Nodes)
	if c.Nodes > all {
		return nil, exitcode.Usagef("use a smaller --nodes", "start ranks on %d nodes: the job has %s", c.Nodes, format.Count(all, "node"))
	}
	nodes, total := cmp.Or(c.Nodes, all), c.Tasks
	switch {
	case c.TasksPerNode > 0 && (total == 0 || total == nodes*c.TasksPerNode):
		return slices.Repeat([]int{c.TasksPerNode}, nodes), nil
	case c.TasksPerNode > 0 && total%c.TasksPerNode == 0 && total/c.TasksPerNode <= nodes:
		return slices.Repeat([]int{c.TasksPerNode}, total/c.TasksPerNode), nil
	case c.TasksPerNode > 0 && total > nodes*c.TasksPerNode:
		return nil, exitcode.Usagef("use a smaller --ntasks", "start %s on %s: --tasks-per-node is %d", format.Count(total, "rank"), format.Count(nodes, "node"), c.TasksPerNode)
	case c.Launcher == string(jobs.LauncherTorchrun) && total == 0:
		return slices.Repeat([]int{max(1, e.count(gpusVariable))}, nodes), nil
	}
	ofJob := e.tasks()
	if total == 0 {
		total = cmp.Or(e.count("SLURM_NTASKS"), sum(ofJob))
		if c.Nodes > 0 && total%nodes != 0 {
			total = nodes
		}
	}
	if total == sum(ofJob) && nodes == all && c.TasksPerNode == 0 {
		return ofJob, nil
	}
	return c.spread(e, total, min(nodes, total)), nil // with fewer tasks than nodes, srun uses fewer nodes
}

// spread divides ranks among the first nodes of the allocation as srun does: in turn, while a node
// has cores for another rank.
func (c Command) spread(e environment, total, nodes int) []int {
	ranks := slices.Repeat([]int{1}, nodes)
	limits := slices.Repeat([]int{cmp.Or(c.TasksPerNode, total)}, nodes)
	cores, each := e.cores(), cmp.Or(c.CPUsPerTask, e.count(cpusVariable), 1)
	if slots := sum(cores[:min(nodes, len(cores))]) / each; len(cores) >= nodes && slots >= total {
		for i := range limits {
			limits[i] = min(limits[i], max(1, cores[i]/each))
		}
	}
	if sum(limits) < total { // srun reports that the cores do not suffice
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

// cpus returns the cores per rank: CPUsPerTask, the value of the job, or the cores of the nodes divided
// among their ranks.
func (c Command) cpus(e environment, ranks []int) int {
	if n := cmp.Or(c.CPUsPerTask, e.count(cpusVariable)); n > 0 {
		return n
	}
	smallest := 0
	for i, n := range e.cores() {
		if i < len(ranks) && (smallest == 0 || n/ranks[i] < smallest) {
			smallest = n / ranks[i]
		}
	}
	return max(1, smallest)
}

// groups returns the nodes of the components of a heterogeneous job, with the tasks and the cores that
// each of them requests.
func (c Command) groups(e environment) (groups []jobs.Group, err error) {
	if c.Nodes > 0 || c.Tasks > 0 || c.Launcher == string(jobs.LauncherTorchrun) && c.TasksPerNode == 0 {
		return nil, exitcode.Usagef("use --tasks-per-node, or a job file with [[slurm.group]]",
			"the job has %d components, which --nodes, --ntasks, and the GPUs of one node do not describe", len(e.allocation.Components))
	}
	tasks, cores := e.tasks(), e.cores()
	first := 0
	for i, nodes := range e.componentNodes() {
		own := tasks[first : first+nodes]
		if c.TasksPerNode > 0 {
			own = []int{c.TasksPerNode}
		}
		g := jobs.Group{Nodes: nodes, TasksPerNode: own[0]}
		if slices.Max(own) != slices.Min(own) {
			return nil, exitcode.Usagef("set --tasks-per-node, or use a job file with [[slurm.group]]",
				"component %d of the job has different numbers of tasks on its nodes: %s", i, slurm.FoldTasksPerNode(own))
		}
		cpus := cmp.Or(c.CPUsPerTask, e.componentCount(cpusVariable, i))
		if cpus == 0 && cores != nil {
			cpus = slices.Min(cores[first:first+nodes]) / g.TasksPerNode
		}
		g.CPUsPerTask = jobs.Cores(max(1, cpus))
		groups, first = append(groups, g), first+nodes
	}
	return groups, nil
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}
