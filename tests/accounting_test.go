package tests

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestAccounting checks that sacct reports the final state and the exit code of jobs that slurmctld
// no longer lists.
func TestAccounting(t *testing.T) {
	c := cluster.ForTest(t, cluster.Options{Nodes: 1, Accounting: true, SlurmConf: []string{"MinJobAge=2"}})
	client := slurm.Client{Environ: append(os.Environ(), c.Env()...)}
	jobs := []struct {
		script, exit string
		state        slurm.State
	}{
		{"true\n", "0:0", slurm.StateCompleted},
		{"exit 3\n", "3:0", slurm.StateFailed},
		{"sleep 600\n", "0:0", slurm.StateCancelled}, // state of the job, not of its batch script
	}
	var ids []string
	for _, j := range jobs {
		ids = append(ids, sbatch(t, c, j.script, "--comment=ddpbatch test"))
	}
	waitUntil(t, "the third job to run", func() bool {
		states, err := client.State(t.Context(), ids[2])
		return err == nil && states[0].State == slurm.StateRunning
	})
	if err := client.Cancel(t.Context(), ids[2]); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "slurmctld to forget the jobs", func() bool {
		o := finish(t, c.Command(t.Context(), "scontrol", "--oneliner", "show", "job"))
		return o.code == 0 && !strings.Contains(o.stdout, "JobId=")
	})
	states, err := client.State(t.Context(), append(slices.Clone(ids), "4711")...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range jobs {
		if s := states[i]; s.ID != ids[i] || s.State != j.state || s.ExitCode != j.exit {
			t.Errorf("%q: %+v; want %s with exit code %s", j.script, s, j.state, j.exit)
		}
	}
	if s := states[len(jobs)].State; s != slurm.StateUnknown {
		t.Errorf("got state %s for an unknown job, want %s", s, slurm.StateUnknown)
	}
	o := finish(t, c.Command(t.Context(), "sacct", "--allocations", "--noheader", "--parsable2", "--format=comment,account", "--jobs="+ids[0]))
	if o.stdout != "ddpbatch test|research\n" {
		t.Errorf("the accounts have %v; want the job's comment and account", o)
	}
}
