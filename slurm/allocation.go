package slurm

import (
	"fmt"
	"slices"
	"strconv"
)

// An Allocation describes the job of a batch script or of a shell.
type Allocation struct {
	JobID        string
	Nodes        []string // in Slurm's order; in a heterogeneous job, the nodes of all components
	RestartCount int      // number of requeues of the job

	// Components are the components of a heterogeneous job, in order; nil for other jobs.
	Components []Component

	ArrayJobID string // number of the job array; empty for other jobs
	ArrayTask  string // index of the array task; empty for other jobs

	// StepTasks is the number of tasks of this process's step; 0 in a batch script and in
	// the shell of salloc. If it is above 1, a program that must run once per allocation
	// runs several times.
	StepTasks int
}

// ID returns the job ID; for an array task, in the form "18_3".
func (a Allocation) ID() string {
	if a.ArrayJobID != "" {
		return a.ArrayJobID + "_" + a.ArrayTask
	}
	return a.JobID
}

// AllocationFromEnv reads the allocation of a batch script or of the shell of salloc. It
// returns false outside of allocations.
//
// In a heterogeneous job, the plain variables describe only the first component
// (heterogeneous_jobs, "Environment Variables"), so it reads the variables of each
// component.
func AllocationFromEnv(lookup func(string) (string, bool)) (Allocation, bool, error) {
	if _, ok := lookup("SLURM_JOB_ID"); !ok {
		return Allocation{}, false, nil
	}
	env := envReader{lookup: lookup}
	a := Allocation{
		JobID:        env.id("SLURM_JOB_ID"),
		Nodes:        env.hosts("SLURM_JOB_NODELIST"),
		RestartCount: env.optionalCount("SLURM_RESTART_COUNT"),
		StepTasks:    env.optionalCount("SLURM_STEP_NUM_TASKS"),
	}
	a.ArrayJobID, a.ArrayTask = env.arrayTask()
	components, size := env.components()
	if env.err != nil {
		return Allocation{}, true, fmt.Errorf("read Slurm allocation: %w", env.err)
	}
	if hasLeakedStep(lookup) {
		a.StepTasks = 0
	}
	if len(components) > 0 {
		if err := checkComponents(a, components, size); err != nil {
			return Allocation{}, true, err
		}
		a.Components, a.Nodes = components, mergeNodes(components)
	}
	return a, true, nil
}

// checkComponents compares the plain node list with the components. In a batch script, the
// list has the nodes of the first component. In a step, it has the nodes of the step's
// components.
func checkComponents(a Allocation, components []Component, size string) error {
	conflict := func(format string, args ...any) error {
		return conflictError{"allocation", fmt.Sprintf(format, args...)}
	}
	if first := components[0].Nodes; a.StepTasks == 0 && !slices.Equal(a.Nodes, first) {
		return conflict("SLURM_JOB_NODELIST is %s, but the first of the %d components of %s has %s", FoldHosts(a.Nodes), len(components), size, FoldHosts(first))
	}
	isComponentNode := setOf(mergeNodes(components))
	for _, node := range a.Nodes {
		if !isComponentNode[node] {
			return conflict("SLURM_JOB_NODELIST contains %q, but none of the %d components of %s does", node, len(components), size)
		}
	}
	return nil
}

// hasLeakedStep reports whether the variables of a step belong to a different process. This
// happens if a job is submitted inside of a step: sbatch passes the variables to its
// script. They then describe different nodes or a different number of ranks on this node.
func hasLeakedStep(lookup func(string) (string, bool)) bool {
	env := envReader{lookup: lookup}
	if _, ok := lookup("SLURM_STEP_NODELIST"); !ok {
		return false
	}
	node := slices.Index(env.hosts("SLURM_STEP_NODELIST"), env.text("SLURMD_NODENAME"))
	tasks := env.tasksPerNode("SLURM_STEP_TASKS_PER_NODE")
	ranks, ok := env.localRanks()
	switch {
	case env.err != nil:
		return false // unknown
	case node < 0:
		return true
	}
	return ok && node < len(tasks) && len(ranks) != tasks[node]
}

// A Component is a component of a heterogeneous job, with its own job ID and nodes.
type Component struct {
	JobID string
	Nodes []string // in Slurm's order
}

// maxComponents is Slurm's limit (MAX_HET_JOB_COMPS).
const maxComponents = 128

// hetVars are the names of the variables of heterogeneous jobs: the current names, and the
// names of 17.11 to 19.05, which some versions also set.
var hetVars = []struct{ size, suffix string }{
	{"SLURM_HET_SIZE", "_HET_GROUP_"},
	{"SLURM_PACK_SIZE", "_PACK_GROUP_"},
}

// components returns the components of a heterogeneous job, in order, and the name of the
// variable that has their number. It returns nil for other jobs.
func (r *envReader) components() (list []Component, size string) {
	for _, names := range hetVars {
		n := r.optionalCount(names.size)
		if n > maxComponents {
			r.fail("%s is %d, but a job has at most %d components", names.size, n, maxComponents)
		}
		if n < 2 || r.err != nil {
			continue
		}
		for i := range n {
			suffix := names.suffix + strconv.Itoa(i)
			list = append(list, Component{JobID: r.id("SLURM_JOB_ID" + suffix), Nodes: r.hosts("SLURM_JOB_NODELIST" + suffix)})
		}
		return list, names.size
	}
	return nil, ""
}

// mergeNodes returns the nodes of all components, in order. A node that is in two
// components occurs twice.
func mergeNodes(components []Component) []string {
	var all []string
	for _, c := range components {
		all = append(all, c.Nodes...)
	}
	return all
}

// orderByComponents sorts the nodes of a step, and their tasks, by component. SLURM_NODEID
// and the ranks have this order, but SLURM_STEP_NODELIST is sorted by name: Slurm 22.05
// prints n[1-3] for a job of n3 and n[1-2], where node 0 is n3. It changes nothing if a node
// is in no component, or occurs twice in hosts.
func orderByComponents(components []Component, hosts []string, tasks []int) {
	index := make(map[string]int)
	for i, host := range hosts {
		index[host] = i
	}
	var order []int
	for _, host := range mergeNodes(components) {
		if i, ok := index[host]; ok {
			order = append(order, i)
			delete(index, host)
		}
	}
	if len(order) != len(hosts) || len(tasks) != len(hosts) {
		return
	}
	oldHosts, oldTasks := slices.Clone(hosts), slices.Clone(tasks)
	for to, from := range order {
		hosts[to], tasks[to] = oldHosts[from], oldTasks[from]
	}
}
