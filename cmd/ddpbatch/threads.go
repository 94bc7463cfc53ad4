package main

import (
	"runtime"
	"strconv"
)

// threads is the number of threads that the rank computes on: the cores that are
// its own. Results do not depend on it, speed does: with more threads than cores the
// ranks of a node stand in each other's way.
//
// In a step these are the cores that srun says it has for each task; without a limit
// on the process (TaskPlugin=task/none) nothing else would say so. On a machine
// without Slurm, cores are divided among the ranks, unless the job file says how many
// each has.
func (r *rank) threads() int {
	cores := runtime.GOMAXPROCS(0) // of the process: a CPU mask or a cgroup's limit counts
	own := int(r.job.Slurm.CPUsPerTask)
	if r.place.InSlurm() {
		if text, ok := r.lookup("SLURM_CPUS_PER_TASK"); ok {
			if n, err := strconv.Atoi(text); err == nil && n > 0 {
				own = n
			}
		}
	} else if !r.job.Gives("slurm.cpus_per_task") {
		own = cores / r.place.LocalWorldSize
	}
	return max(1, min(own, cores))
}
