package main

import (
	"runtime"
	"strconv"
)

// threads returns the number of compute threads of the rank, which is its number of cores.
// Results do not depend on it. With more threads than cores, the ranks of a node slow each
// other down.
//
// In a Slurm step, the number comes from SLURM_CPUS_PER_TASK, because with
// TaskPlugin=task/none no CPU mask limits the process. Without Slurm, the ranks share the
// cores equally, unless the job file sets slurm.cpus_per_task.
func (r *rank) threads() int {
	cores := runtime.GOMAXPROCS(0) // respects the CPU affinity mask and cgroup limits of the process
	own := r.job.Slurm.CPUsPerTask
	if r.info.InSlurm() {
		if text, ok := r.lookup("SLURM_CPUS_PER_TASK"); ok {
			if n, err := strconv.Atoi(text); err == nil && n > 0 {
				own = n
			}
		}
	} else if !r.job.IsSet("slurm.cpus_per_task") {
		own = cores / r.info.LocalWorldSize
	}
	return max(1, min(own, cores))
}
