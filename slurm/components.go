package slurm

import (
	"slices"
	"strconv"
)

// Component is one part of a heterogeneous job, with a job id and nodes of its
// own.
type Component struct {
	JobID string
	Nodes []string // in Slurm's order
}

// maxComponents is Slurm's own limit (MAX_HET_JOB_COMPS).
const maxComponents = 128

// hetNames are the names of the variables of heterogeneous jobs: the present
// ones, and those of 17.11 to 19.05, which some versions set beside them.
var hetNames = []struct{ size, suffix string }{
	{"SLURM_HET_SIZE", "_HET_GROUP_"},
	{"SLURM_PACK_SIZE", "_PACK_GROUP_"},
}

// components reads the parts of a heterogeneous job, in order; none where the
// job has one part only. size is the variable that says how many there are.
func (v *variables) components() (parts []Component, size string) {
	for _, names := range hetNames {
		n := v.numberOr(names.size, 0)
		if n > maxComponents {
			v.fail("%s is %d, but a job has at most %d components", names.size, n, maxComponents)
		}
		if n < 2 || v.err != nil {
			continue
		}
		for i := range n {
			suffix := names.suffix + strconv.Itoa(i)
			parts = append(parts, Component{JobID: v.id("SLURM_JOB_ID" + suffix), Nodes: v.hosts("SLURM_JOB_NODELIST" + suffix)})
		}
		return parts, names.size
	}
	return nil, ""
}

// mergeNodes returns the nodes of all components, each as often as it occurs:
// components that share a node have it twice.
func mergeNodes(parts []Component) []string {
	var all []string
	for _, part := range parts {
		all = append(all, part.Nodes...)
	}
	return all
}

// orderByComponents puts the nodes of a step over several components, and their
// tasks, in the order in which SLURM_NODEID counts them: component by component,
// as the ranks do. SLURM_STEP_NODELIST is sorted instead (measured with 22.05: a
// job of n3 and n[1-2] has n[1-3] there, while node 0 is n3). Nothing changes
// where a node is not in exactly one component.
func orderByComponents(parts []Component, hosts []string, tasks []int) {
	place := make(map[string]int)
	for i, host := range hosts {
		place[host] = i
	}
	var order []int
	for _, host := range mergeNodes(parts) {
		if i, ok := place[host]; ok {
			order = append(order, i)
			delete(place, host)
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

// arrayTask reads which element of which job array this is; both are empty for
// other jobs.
func (v *variables) arrayTask() (array, task string) {
	_, hasArray := v.lookup("SLURM_ARRAY_JOB_ID")
	_, hasTask := v.lookup("SLURM_ARRAY_TASK_ID")
	switch {
	case !hasArray && !hasTask:
		return "", ""
	case !hasTask:
		v.fail("SLURM_ARRAY_JOB_ID is set, but SLURM_ARRAY_TASK_ID is not")
	case !hasArray:
		v.fail("SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_JOB_ID is not")
	}
	return v.id("SLURM_ARRAY_JOB_ID"), v.id("SLURM_ARRAY_TASK_ID")
}
