package slurm

import (
	"slices"
	"testing"
)

func TestScrub(t *testing.T) {
	in := []string{
		"HOME=/home/u",
		"SLURM_CONF=/etc/slurm/slurm.conf",
		"SLURM_STEP_NODELIST=n1",
		"SLURM_CONF_SERVER=ctl",
		"SLURMD_NODENAME=n1",
		"SBATCH_PARTITION=high",
		"SRUN_CPUS_PER_TASK=1",
		"SRUNNER=kept",
		"PMI_RANK=0",
		"PMI2_FD=3",
		"PMIX_NAMESPACE=x",
		"PMIEPATH=kept",
		"SQUEUE_FORMAT=kept",
		"EMPTY=",
		"SLURM_TOKEN=secret=1",
		"HOME=/again",
	}
	kept, dropped := Scrub(slices.Clone(in))
	wantKept := []string{
		"HOME=/home/u", "SLURM_CONF=/etc/slurm/slurm.conf", "SRUNNER=kept", "PMIEPATH=kept",
		"SQUEUE_FORMAT=kept", "EMPTY=", "HOME=/again",
	}
	wantDropped := []string{
		"SLURM_STEP_NODELIST", "SLURM_CONF_SERVER", "SLURMD_NODENAME", "SBATCH_PARTITION", "SRUN_CPUS_PER_TASK", "PMI_RANK", "PMI2_FD",
		"PMIX_NAMESPACE", "SLURM_TOKEN",
	}
	if !slices.Equal(kept, wantKept) {
		t.Errorf("kept %q\nwant %q", kept, wantKept)
	}
	if !slices.Equal(dropped, wantDropped) {
		t.Errorf("dropped %q\nwant    %q", dropped, wantDropped)
	}
}
