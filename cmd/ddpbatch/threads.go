package main

import (
	"cmp"
	"runtime"
	"strconv"
)

// threads returns the number of compute threads of the rank, which is its number of cores.
// Results do not depend on it. With more threads than cores, the ranks of a node slow each
// other down.
//
// In a Slurm step, the number comes from SLURM_CPUS_PER_TASK, because with
// TaskPlugin=task/none no CPU mask limits the process. With slurm.cpus_per_task = "all", the
// ranks divide the cores of the step equally. Without Slurm, the ranks divide the cores of the
// machine equally, unless the job file sets a number.
func (r *rank) threads() int {
	cores := runtime.GOMAXPROCS(0) // respects the CPU affinity mask and cgroup limits of the process
	own := int(r.job.Slurm.CPUsPerTask)
	isShared := r.job.SharesCores()
	switch {
	case !r.info.InSlurm() && (isShared || !r.job.IsSet("slurm.cpus_per_task")):
		own = cores / r.info.LocalWorldSize
	case !r.info.InSlurm():
	case r.count("SLURM_CPUS_PER_TASK") > 0:
		own = r.count("SLURM_CPUS_PER_TASK")
	case isShared: // a rank of a group with a number has SLURM_CPUS_PER_TASK
		// Not the cores of the mask: Slurm may have divided them among the ranks.
		own = cmp.Or(r.count("SLURM_CPUS_ON_NODE"), cores) / r.info.LocalWorldSize
	}
	return max(1, min(own, cores))
}

// count returns the value of a variable, or 0 if it is not a positive number.
func (r *rank) count(name string) int {
	text, _ := r.lookup(name)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(0, n)
}
