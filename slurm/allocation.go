package slurm

import (
	"fmt"
	"slices"
)

// Allocation is what Slurm has given to a job.
type Allocation struct {
	JobID        string
	Nodes        []string // in Slurm's order; of a heterogeneous job those of all components, one after the other
	RestartCount int      // how often Slurm has requeued the job; 0 in its first run

	// Components are the parts of a heterogeneous job, in order. Any other job
	// has none.
	Components []Component

	// ArrayJobID and ArrayTask name the element of a job array that this is, as
	// "18" and "3"; both are empty for any other job.
	ArrayJobID string
	ArrayTask  string

	// StepTasks is the number of tasks of the step that this process is part of,
	// and 0 in the batch script or the shell of an allocation. Above 1, what
	// should run once per allocation runs several times.
	StepTasks int
}

// ID is the job's id as Slurm's programs take it: of an array's element "18_3".
func (a Allocation) ID() string {
	if a.ArrayJobID != "" {
		return a.ArrayJobID + "_" + a.ArrayTask
	}
	return a.JobID
}

// AllocationFromEnv reads the allocation around a batch script, or around the
// shell of salloc. It is false where there is none.
//
// In a heterogeneous job the plain variables describe its first component only
// (heterogeneous_jobs, "Environment Variables"), so that each component is read
// from its own.
func AllocationFromEnv(lookup func(string) (string, bool)) (Allocation, bool, error) {
	if _, ok := lookup("SLURM_JOB_ID"); !ok {
		return Allocation{}, false, nil
	}
	v := variables{lookup: lookup}
	a := Allocation{
		JobID:        v.id("SLURM_JOB_ID"),
		Nodes:        v.hosts("SLURM_JOB_NODELIST"),
		RestartCount: v.numberOr("SLURM_RESTART_COUNT", 0),
		StepTasks:    v.numberOr("SLURM_STEP_NUM_TASKS", 0),
	}
	a.ArrayJobID, a.ArrayTask = v.arrayTask()
	parts, size := v.components()
	if v.err != nil {
		return Allocation{}, true, fmt.Errorf("reading the Slurm allocation: %w", v.err)
	}
	if leakedStep(lookup) {
		a.StepTasks = 0
	}
	if len(parts) > 0 {
		if err := checkComponents(a, parts, size); err != nil {
			return Allocation{}, true, err
		}
		a.Components, a.Nodes = parts, mergeNodes(parts)
	}
	return a, true, nil
}

// checkComponents compares the plain list of nodes with the components: it names
// the first one's, or inside a step those of the components that the step is in.
func checkComponents(a Allocation, parts []Component, size string) error {
	if a.StepTasks == 0 && !slices.Equal(a.Nodes, parts[0].Nodes) {
		return disagreement{"allocation", fmt.Sprintf("SLURM_JOB_NODELIST is %s, but the first of the %d components of %s has %s",
			FoldHosts(a.Nodes), len(parts), size, FoldHosts(parts[0].Nodes))}
	}
	all := setOf(mergeNodes(parts))
	for _, node := range a.Nodes {
		if !all[node] {
			return disagreement{"allocation", fmt.Sprintf("SLURM_JOB_NODELIST holds %q, but none of the %d components of %s does", node, len(parts), size)}
		}
	}
	return nil
}

// leakedStep says whether the variables of a step are not about this process, as
// when a job was submitted from inside a step of another: sbatch carries them
// into its script. They are about other nodes then, or about another number of
// ranks than this node has.
func leakedStep(lookup func(string) (string, bool)) bool {
	v := variables{lookup: lookup}
	if _, ok := lookup("SLURM_STEP_NODELIST"); !ok {
		return false
	}
	here := slices.Index(v.hosts("SLURM_STEP_NODELIST"), v.text("SLURMD_NODENAME"))
	layout, err := ParseLayout(v.text("SLURM_STEP_TASKS_PER_NODE"))
	ranks, told := v.ranksHere()
	switch {
	case v.err != nil || err != nil:
		return false // nothing is certain but that there are variables of a step
	case here < 0:
		return true
	}
	return told && here < len(layout) && len(ranks) != layout[here]
}
