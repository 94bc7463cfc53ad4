package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// preempting starts a cluster on which jobs in the partition low are preempted within some seconds.
func preempting(t *testing.T, more ...string) site {
	t.Helper()
	conf := append([]string{"PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=20"}, more...)
	return newSite(t, cluster.Options{Nodes: 2, SlurmConf: conf})
}

// preempt submits a job to the partition high that briefly uses all nodes. It returns when Slurm
// has told the other job about its preemption.
func (s site) preempt(id string) {
	s.t.Helper()
	o := finish(s.t, s.Command(s.t.Context(), "sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1"))
	if o.code != 0 {
		s.t.Fatal(o)
	}
	waitUntil(s.t, "the job to be preempted", func() bool {
		o := finish(s.t, s.Command(s.t.Context(), "scontrol", "show", "job", id))
		return strings.Contains(o.stdout, "PreemptTime=2") || strings.Contains(o.stdout, "Restarts=1 ") // PreemptTime is a time, or it has been cleared by the requeue
	})
}

// checkRequeuedOnce checks that a job was requeued exactly once.
func (s site) checkRequeuedOnce(id string) {
	s.t.Helper()
	if o := finish(s.t, s.Command(s.t.Context(), "scontrol", "show", "job", id)); !strings.Contains(o.stdout, "Restarts=1 ") {
		s.t.Error(o.stdout)
	}
}

// TestPreempted checks that a preempted training saves a checkpoint, is requeued once, and ends
// with the weights of an undisturbed run, whether Slurm signals the batch script or only the ranks.
func TestPreempted(t *testing.T) {
	t.Parallel() // as its subtests are
	for name, tt := range map[string]struct{ conf, said string }{
		"the ranks are told":       {"KillWait=10", ""},
		"the batch script is told": {"SlurmctldParameters=preempt_send_user_signal", "asking all ranks to save and stop: the time limit is near, or the job is preempted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := preempting(t, tt.conf)
			text := strings.Replace(fmt.Sprintf(fashion, "low", 2, 1, 8, 96), "[train]", "partition = \"low\"\n[train]", 1)
			s.write("job.toml", strings.Replace(text, "100 steps", "100000 steps", 1))
			whole := s.submit("job.toml", "--run-dir", "runs/whole")
			s.completed(whole)
			id := s.submit("job.toml")
			waitUntil(t, "some steps", func() bool { return len(figures(t, s.run("low"))) > 2 })
			resume := s.hold("low")
			s.preempt(id)
			waitForText(t, filepath.Join(s.run("low"), "slurm-"+id+".out"), tt.said)
			resume()
			startRequeued(t, s.Cluster, id)
			s.completed(id)
			s.checkRequeuedOnce(id)
			mustContain(t, s.log("low", id), "stopped after step", "(it is preempted)", "resuming after step", "finished: 8 epochs", tt.said)
			if got, want := weights(t, s.run("low")), weights(t, s.run("whole")); got != want {
				t.Errorf("other weights:\n%s\n%s", got, want)
			}
		})
	}
}

// writeCountingJob writes a job with a program that saves its own snapshot, with 2 ranks on 2
// nodes.
func (s site) writeCountingJob(name, slurm, restart string) {
	s.t.Helper()
	text, err := os.ReadFile("testdata/own_snapshot.py")
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("count.py", string(text))
	s.write("job.toml", fmt.Sprintf("name = %q\n[slurm]\nnodes = 2\n%s[command]\nargv = [\"/usr/bin/python3\", \"count.py\"]\n%s", name, slurm, restart))
}

// checkCountedOnce checks that each rank was stopped, resumed, and counted every number once.
func (s site) checkCountedOnce(name, id string) {
	s.t.Helper()
	for rank := range 2 {
		want, got := "", s.file(fmt.Sprintf("counted-%d.txt", rank))
		n := strings.Count(got, "\n")
		for i := range n {
			want += fmt.Sprintf("%d\n", i+1)
		}
		if got != want {
			s.t.Errorf("rank %d counted %q", rank, got)
		}
		at := func(what string, n int) string { return fmt.Sprintf("rank %d: %s %d", rank, what, n) }
		mustContain(s.t, s.log(name, id), at("from", 0), at("stopped at", n-40), at("from", n-40), at("done at", n))
	}
}

// TestProgramIsPreempted checks that a preempted user program saves its own snapshot and resumes
// from it.
func TestProgramIsPreempted(t *testing.T) {
	s := preempting(t)
	s.writeCountingJob("count", "partition = \"low\"\n", "")
	id := s.submit("job.toml")
	waitForText(t, filepath.Join(s.home, "counted-1.txt"), "40\n")
	s.preempt(id)
	startRequeued(t, s.Cluster, id)
	s.completed(id)
	s.checkRequeuedOnce(id)
	s.checkCountedOnce("count", id)
}

// TestPyTorchScriptIsPreempted preempts a PyTorch script that does not handle the signal. It checks
// that the signal kills the script, that the job is requeued once, and that the script resumes from
// its own snapshot at the next epoch.
func TestPyTorchScriptIsPreempted(t *testing.T) {
	s := preempting(t)
	script(t, s)
	s.write("job.toml", `name = "ddp"
[slurm]
nodes = 2
partition = "low"
[command]
argv = ["/usr/bin/python3", "train.py", "150", "1", "snapshot.pt"]
`)
	id := s.submit("job.toml")
	waitForText(t, filepath.Join(s.run("ddp"), "slurm-"+id+".out"), "epoch 3: loss")
	s.preempt(id)
	startRequeued(t, s.Cluster, id)
	s.completed(id)
	s.checkRequeuedOnce(id)
	log := s.log("ddp", id)
	mustContain(t, log, "(it is preempted)", "rank 0: resuming at epoch ", "rank 1 of 2, local rank 0: done")
	repeated := 0 // at most one epoch, which was printed but not yet saved
	for epoch := range 150 {
		n := strings.Count(log, fmt.Sprintf("epoch %d: loss", epoch))
		if repeated += n - 1; n < 1 || repeated > 1 {
			t.Fatalf("epoch %d was trained %d times", epoch, n)
		}
	}
}

// TestProgramAtItsTimeLimit checks that a user program saves its own snapshot at the time limit and
// resumes from it after the requeue.
func TestProgramAtItsTimeLimit(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.writeCountingJob("count", "time = \"00:01:00\"\nsignal_before_end = \"55s\"\n", "[restart]\nrequeue = 1\n")
	id := s.submit("job.toml")
	log := filepath.Join(s.run("count"), "slurm-"+id+".out")
	waitForText(t, log, "requeued as job "+id+" (1 of 1)")
	extendTimeLimit(t, s.Cluster, id)
	startRequeued(t, s.Cluster, id)
	s.completed(id)
	s.checkRequeuedOnce(id)
	s.checkCountedOnce("count", id)
}
