package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// hetSite starts a cluster that starts heterogeneous jobs immediately. Only the backfill scheduler
// starts such jobs.
func hetSite(t *testing.T) site {
	t.Helper()
	return newSite(t, cluster.Options{SlurmConf: []string{"SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1"}})
}

// TestHeterogeneousJob checks a heterogeneous job from a user's own script: the launcher starts one
// step on all components, and srun without the launcher does the same.
func TestHeterogeneousJob(t *testing.T) {
	s := hetSite(t)
	s.write("job.toml", strings.Replace(fmt.Sprintf(fashion, "het", 3, 2, 1, 64), `path = "/usr/share/datasets/fashion-mnist"`, `path = "builtin:fashion-mnist"`, 1))
	s.write("program.toml", "name = \"program\"\nslurm.nodes = 3\ncommand.argv = [\"sh\", \"-c\", \"echo rank=$RANK of $WORLD_SIZE\"]\n")
	s.write("het.sh", fmt.Sprintf(`#!/bin/sh
#SBATCH --nodes=1 --nodelist=n3 --ntasks-per-node=2 --output=%s/het.out
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=2
cd %[1]s
%[2]s launch job.toml && %[2]s launch program.toml &&
srun --het-group=0 -N1 -n1 -c1 %[2]s run program.toml --run-dir runs/bare : --het-group=1 -N2 -n2 -c1 %[2]s run program.toml --run-dir runs/bare
`, s.home, binary))
	cmd := s.Command(t.Context(), "sbatch", "--parsable", "--wait", filepath.Join(s.home, "het.sh"))
	cmd.Dir = s.home
	if o := finish(t, cmd); o.code != 0 {
		t.Fatalf("%v\n%s", o, s.file("het.out"))
	}
	out := s.file("het.out")
	mustContain(t, out, "6 ranks on 3 nodes", "finished: 1 epoch")
	for rank := range 3 {
		if n := strings.Count(out, fmt.Sprintf("rank=%d of 3", rank)); n != 2 {
			t.Errorf("rank %d of 3 ran %d times, want once by the launcher and once by srun:\n%s", rank, n, out)
		}
	}
	weights(t, s.run("het"))
	for run, want := range map[string]string{"het": "finished: 1 epoch", "program": "rank=2 of 3"} {
		if log := s.ddpbatch("logs", run); log.code != 0 || strings.Count(log.stdout, want) != 1 {
			t.Errorf("the log of %s lacks %q: %v", run, want, log)
		}
	}
}
