package adhoc

import (
	"slices"
	"strconv"

	"github.com/ddpbatch/ddpbatch/slurm"
)

const (
	cpusVariable = "SLURM_CPUS_PER_TASK"
	gpusVariable = "SLURM_GPUS_ON_NODE"
)

// An environment holds the variables of the surrounding allocation.
type environment struct {
	lookup     func(name string) (string, bool)
	allocation *slurm.Allocation // nil outside of Slurm
}

// isHeterogeneous reports whether the allocation has several components.
func (e environment) isHeterogeneous() bool {
	return e.allocation != nil && len(e.allocation.Components) > 0
}

// componentNodes returns the number of nodes of each component of the allocation. A job that is not
// heterogeneous has one component.
func (e environment) componentNodes() (nodes []int) {
	for _, c := range e.allocation.Components {
		nodes = append(nodes, len(c.Nodes))
	}
	if nodes == nil {
		nodes = []int{len(e.allocation.Nodes)}
	}
	return nodes
}

// componentName returns the name of a variable for a component.
func (e environment) componentName(name string, component int) string {
	if e.isHeterogeneous() {
		name += "_HET_GROUP_" + strconv.Itoa(component)
	}
	return name
}

// count returns the number in a variable, or 0.
func (e environment) count(name string) int {
	value, _ := e.lookup(name)
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// componentCount returns the number in a variable for a component, or 0.
func (e environment) componentCount(name string, component int) int {
	return e.count(e.componentName(name, component))
}

// nodeCounts returns the numbers in a variable such as SLURM_JOB_CPUS_PER_NODE, for the nodes of a
// component. It returns nil if the variable does not have a number for each node.
func (e environment) nodeCounts(name string, component, nodes int) []int {
	text, _ := e.lookup(e.componentName(name, component))
	list, err := slurm.ParseTasksPerNode(text)
	if err != nil || len(list) != nodes {
		return nil
	}
	return list
}

// tasks returns the tasks of the job on each node of the allocation. A job without a number of tasks
// has one task on each node.
func (e environment) tasks() (tasks []int) {
	for i, nodes := range e.componentNodes() {
		// Slurm also sets SLURM_TASKS_PER_NODE if the job requests cores only. Since 24.05, components
		// with a number of tasks per node do not have a total.
		own := e.nodeCounts("SLURM_TASKS_PER_NODE", i, nodes)
		total := e.componentCount("SLURM_NTASKS", i)
		switch {
		case total > 0 && total == sum(own):
		case total > 0 && total%nodes == 0:
			own = slices.Repeat([]int{total / nodes}, nodes)
		default:
			own = slices.Repeat([]int{max(1, e.componentCount("SLURM_NTASKS_PER_NODE", i))}, nodes)
		}
		tasks = append(tasks, own...)
	}
	return tasks
}

// cores returns the cores of each node of the allocation, or nil if they are not known.
func (e environment) cores() (cores []int) {
	for i, nodes := range e.componentNodes() {
		own := e.nodeCounts("SLURM_JOB_CPUS_PER_NODE", i, nodes) // such as 72(x2),36
		if own == nil {
			return nil
		}
		cores = append(cores, own...)
	}
	return cores
}
