package slurm

import "fmt"

// Allocation is what Slurm has given to a job.
type Allocation struct {
	JobID        string
	Nodes        []string // in Slurm's order
	RestartCount int      // how often Slurm has requeued the job; 0 in its first run

	// StepTasks is the number of tasks of the step that this process is part of,
	// and 0 in the batch script or the shell of an allocation. Above 1, what
	// should run once per allocation runs several times.
	StepTasks int
}

// AllocationFromEnv reads the allocation around a batch script, or around the
// shell of salloc. It is false where there is none.
//
// In a heterogeneous job these variables describe its first component only, so
// such a job is refused.
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
	if n := v.numberOr("SLURM_HET_SIZE", 1); n > 1 {
		v.fail("heterogeneous jobs are not supported: SLURM_HET_SIZE is %d", n)
	}
	if v.err != nil {
		return Allocation{}, true, fmt.Errorf("reading the Slurm allocation: %w", v.err)
	}
	return a, true, nil
}
