package launch

import (
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// setFramework changes the environment of a rank's program to the environment in which the launcher
// of its framework would start it. It does not replace settings of the user.
//
//   - accelerate: `accelerate launch` also sets settings such as ACCELERATE_MIXED_PRECISION. The user
//     sets them in setup.env. Without ACCELERATE_USE_CPU, some versions use NCCL on nodes without
//     GPUs.
//   - deepspeed: the variables of deepspeed/launcher/launch.py.
//   - lightning: TORCHELASTIC_RUN_ID makes Lightning use the ranks of torchrun's variables. Versions
//     before 1.7 prefer Slurm's variables, which must therefore be missing. With them, Lightning
//     would also choose a port and requeue the job.
func (r *Rank) setFramework(environ []string) []string {
	set := func(name, value string) { environ = append(removeVars(environ, name), name+"="+value) }
	p := r.Info
	switch r.job.Command.Launcher {
	case jobs.LauncherAccelerate:
		if _, given := lookupIn(environ)("ACCELERATE_USE_CPU"); !given {
			set("ACCELERATE_USE_CPU", strconv.FormatBool(r.job.Slurm.GPUsPerNode == 0))
		}
	case jobs.LauncherDeepSpeed:
		set("LOCAL_SIZE", strconv.Itoa(p.LocalWorldSize))
		set("CROSS_RANK", strconv.Itoa(p.NodeRank))
		set("CROSS_SIZE", strconv.Itoa(p.Nodes))
	case jobs.LauncherLightning:
		set("NODE_RANK", strconv.Itoa(p.NodeRank))
		environ = removeVars(environ, slurmTaskVariables...)
	}
	return environ
}

// slurmTaskVariables make Lightning use Slurm's variables.
var slurmTaskVariables = strings.Fields("SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_NPROCS")
