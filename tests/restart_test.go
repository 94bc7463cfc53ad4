package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// onNodes returns a training job on two or more nodes with a [restart] table.
func onNodes(name string, nodes, epochs int, restart string) string {
	return fmt.Sprintf(fashion, name, nodes, 2, epochs, 48) + "[network]\nheartbeat_timeout = \"20s\"\njoin_timeout = \"60s\"\n[restart]\n" + restart
}

// waitForCheckpoint waits until a run has a checkpoint after its first one.
func (s site) waitForCheckpoint(name string) {
	s.t.Helper()
	waitUntil(s.t, "a checkpoint", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.run(name), "checkpoints", "step-*[1-9]*"))
		return len(found) > 0
	})
}

// TestSpareNodeTakesTheLostOnesPlace kills a node. It checks that the node is excluded, that a
// spare node replaces it, and that the weights are equal to those of an undisturbed run.
func TestSpareNodeTakesTheLostOnesPlace(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", onNodes("spare", 2, 6, "spare_nodes = 1\n"))
	whole := s.submit("job.toml", "--run-dir", "runs/whole")
	s.completed(whole)
	id := s.submit("job.toml")
	s.waitForCheckpoint("spare")
	if err := s.KillNode("n2"); err != nil {
		t.Fatal(err)
	}
	waitForText(t, filepath.Join(s.run("spare"), "slurm-"+id+".out"), "finished: 6 epochs")
	mustContain(t, s.log("spare", id), "excluding node n2: ", "continuing with 2 of 2 nodes: n[1,3]",
		"4 ranks on 2 nodes", "resuming after step")
	if got, want := weights(t, s.run("spare")), weights(t, s.run("whole")); got != want {
		t.Errorf("other weights:\n%s\n%s", got, want)
	}
	s.completed(id)
}

// TestFewerNodes checks that without a spare node the training continues on fewer nodes, down to
// min_nodes. Below min_nodes the job is requeued, so that Slurm can assign other nodes.
func TestFewerNodes(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 3})
	s.write("job.toml", onNodes("fewer", 3, 100000, "min_nodes = 2\n"))
	id := s.submit("job.toml")
	s.waitForCheckpoint("fewer")
	log := filepath.Join(s.run("fewer"), "slurm-"+id+".out")
	if err := s.KillNode("n3"); err != nil {
		t.Fatal(err)
	}
	waitForText(t, log, "continuing with 2 of 3 nodes: n[1-2]")
	waitForText(t, log, "4 ranks on 2 nodes")
	step := 0
	if f := figures(t, s.run("fewer")); len(f) > 0 {
		step = f[len(f)-1].Step
	}
	waitUntil(t, "more steps", func() bool { f := figures(t, s.run("fewer")); return f[len(f)-1].Step > step+100 })
	if err := s.KillNode("n2"); err != nil {
		t.Fatal(err)
	}
	waitForText(t, log, "giving up: only 1 of 3 nodes are usable, and the job needs 2")
	waitUntil(t, "the job to be requeued", func() bool {
		o := finish(t, s.Command(t.Context(), "scontrol", "show", "job", id))
		return strings.Contains(o.stdout, "Restarts=1")
	})
	if o := finish(t, s.Command(t.Context(), "scancel", id)); o.code != 0 {
		t.Error(o)
	}
	s.ends(id, "CANCELLED") // until then the job writes to its run directory
}

// TestNodeAtFaultTwice checks that a node on which a program fails repeatedly is excluded, and that
// the program receives the smaller world size.
func TestNodeAtFaultTwice(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", `name = "fault"
[slurm]
nodes = 3
tasks_per_node = 2
time = "00:10:00"
[command]
argv = ["/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME; if [ $SLURMD_NODENAME = n2 ]; then exit 5; fi; test $WORLD_SIZE = 4 || sleep 60"]
[restart]
max_without_progress = 3
min_nodes = 2
`)
	id := s.submit("job.toml")
	s.completed(id)
	log := s.log("fault", id)
	mustContain(t, log, "sh ended with exit code 5; starting again (1 of 3 without progress)", "starting again in 2s (2 of 3 without progress)",
		"excluding node n2: its rank failed first in two consecutive attempts", "continuing with 2 of 3 nodes: n[1,3]",
		"rank 3 of 4 on n3", "how the ranks ended:", "ended with the job")
	if strings.Contains(strings.ToLower(log), "warning") {
		t.Errorf("a warning:\n%s", log)
	}
}

// TestTimeToTrainAgain measures the time from the death of a rank to the first step after the last
// checkpoint, on two nodes.
func TestTimeToTrainAgain(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(fashion, "again", 2, 2, 100000, 48)+"[restart]\nmax_without_progress = 3\n")
	id := s.submit("job.toml")
	var segments []string
	for i := range 3 {
		s.waitForCheckpoint("again")
		before := len(figures(t, s.run("again")))
		waitUntil(t, "more steps", func() bool { return len(figures(t, s.run("again"))) > before+1 })
		shared := finish(t, s.OnNode(t.Context(), "n1", "sh", "-c", "grep -oh '/dev/shm/ddpbatch-[0-9a-f]*' /proc/[0-9]*/maps"))
		segments = append(segments, strings.Fields(shared.stdout)...)
		if o := finish(t, s.OnNode(t.Context(), []string{"n1", "n2"}[i%2], "pkill", "-KILL", "--newest", "-f", "ddpbatch run")); o.code != 0 {
			t.Fatal(o)
		}
		killed := time.Now()
		waitUntil(t, "training again", func() bool {
			return strings.Count(s.log("again", id), "resuming after step") > i
		})
		before = len(figures(t, s.run("again")))
		waitUntil(t, "the next figures", func() bool { return len(figures(t, s.run("again"))) > before })
		t.Logf("training again %v after the kill", time.Since(killed).Round(10*time.Millisecond))
	}
	if o := s.ddpbatch("cancel", "runs/again"); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "CANCELLED")
	for _, n := range s.Nodes()[:2] {
		if o := finish(t, s.OnNode(t.Context(), n, "pgrep", "-f", "ddpbatch run")); o.code == 0 {
			t.Errorf("%s: left behind: %s", n, o.stdout)
		}
		if o := finish(t, s.OnNode(t.Context(), n, "ss", "-Htnp")); strings.Contains(o.stdout, "ddpbatch") {
			t.Errorf("%s: sockets left behind: %s", n, o.stdout)
		}
	}
	for _, name := range segments {
		if o := finish(t, s.OnNode(t.Context(), "n1", "test", "-e", name)); o.code == 0 {
			t.Errorf("%s is left behind", name)
		}
	}
	if len(segments) == 0 {
		t.Error("the ranks share no memory")
	}
}
