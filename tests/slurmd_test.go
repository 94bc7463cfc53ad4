package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// killSlurmd kills slurmd on a node and no other process.
func (s site) killSlurmd(node string) {
	s.t.Helper()
	if o := finish(s.t, s.OnNode(s.t.Context(), node, "pkill", "-KILL", "--exact", "slurmd")); o.code != 0 {
		s.t.Fatal(o)
	}
}

// waitForProgress waits until a run has advanced.
func (s site) waitForProgress(name string) {
	s.t.Helper()
	step := func() int {
		if f := figures(s.t, s.run(name)); len(f) > 0 {
			return f[len(f)-1].Step
		}
		return 0
	}
	from := step()
	waitUntil(s.t, "more steps", func() bool { return step() > from+200 })
}

// TestSlurmdAndTheFirstNode kills slurmd on one node of a run. If slurmd restarts soon, the
// run is not affected. Otherwise Slurm requeues the job, as it does when it loses the first
// node, where the batch script and the launcher run. The remaining processes must be gone by then.
func TestSlurmdAndTheFirstNode(t *testing.T) {
	s := newSite(t, cluster.Options{SlurmConf: []string{"SlurmdTimeout=20", "MessageTimeout=5"}})
	s.write("job.toml", fmt.Sprintf(fashion, "orphan", 2, 1, 100000, 96))
	id := s.submit("job.toml")
	s.waitForProgress("orphan")

	s.killSlurmd("n2")
	s.waitForProgress("orphan")
	again := s.OnNode(t.Context(), "n2", "slurmd", "-D", "-N", "n2", "-f", filepath.Join(s.Dir(), "slurm", "slurm.conf"))
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	s.waitForProgress("orphan")

	firstNode := func() string {
		o := finish(t, s.Command(t.Context(), "squeue", "--noheader", "--jobs", id, "--format", "%B"))
		return strings.TrimSpace(o.stdout)
	}
	nodes := []string{firstNode()}
	for restarts, lose := range []func(node string){
		s.killSlurmd,
		func(node string) {
			if err := s.KillNode(node); err != nil {
				t.Fatal(err)
			}
		},
	} {
		lose(nodes[restarts])
		startRestarted(t, s.Cluster, id, restarts+1)
		waitUntil(t, "the run to go on", func() bool { return strings.Count(s.log("orphan", id), "resuming after step") == restarts+1 })
		s.waitForProgress("orphan")
		nodes = append(nodes, firstNode())
	}
	for _, node := range nodes {
		mustContain(t, s.log("orphan", id), "(hsn0 on "+node+")")
	}
	if o := finish(t, s.OnNode(t.Context(), nodes[0], "pgrep", "-f", "ddpbatch (run|launch)")); o.code == 0 {
		t.Errorf("left on %s: %s", nodes[0], o.stdout)
	}
	if o := s.ddpbatch("cancel", "runs/orphan"); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "CANCELLED")
	last := 0
	for _, f := range figures(t, s.run("orphan")) {
		if f.Kind == "train" && f.Step <= last {
			t.Errorf("got metrics of step %d after step %d", f.Step, last)
		}
		last = max(last, f.Step)
	}
}
