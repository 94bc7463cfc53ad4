package launch

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestSetFramework checks the variables of each framework.
func TestSetFramework(t *testing.T) {
	slurm := []string{"SLURM_NTASKS=4", "SLURM_NTASKS_PER_NODE=2", "SLURM_NPROCS=4", "SLURM_JOB_ID=7", "SLURM_PROCID=3"}
	for _, tt := range []struct {
		name     string
		launcher jobs.Launcher
		gpus     int
		environ  []string
		want     []string
	}{
		{"rank", jobs.LauncherRank, 0, slurm, slurm},
		{"accelerate on CPUs", jobs.LauncherAccelerate, 0, nil, []string{"ACCELERATE_USE_CPU=true"}},
		{"accelerate on GPUs", jobs.LauncherAccelerate, 2, nil, []string{"ACCELERATE_USE_CPU=false"}},
		{"accelerate, value of the user", jobs.LauncherAccelerate, 2, []string{"ACCELERATE_USE_CPU=1"}, []string{"ACCELERATE_USE_CPU=1"}},
		{"deepspeed", jobs.LauncherDeepSpeed, 0, []string{"LOCAL_SIZE=9"}, []string{"LOCAL_SIZE=2", "CROSS_RANK=1", "CROSS_SIZE=3"}},
		{"lightning", jobs.LauncherLightning, 0, slurm, []string{"SLURM_JOB_ID=7", "SLURM_PROCID=3", "NODE_RANK=1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := &jobs.Job{Command: &jobs.Command{Launcher: tt.launcher}}
			job.Slurm.GPUsPerNode = tt.gpus
			r := &Rank{job: job, Info: RankInfo{Rank: 3, WorldSize: 6, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1, Nodes: 3}}
			if got := r.setFramework(slices.Clone(tt.environ)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
