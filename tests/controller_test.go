package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestControllerRestarts restarts slurmctld during a submission and again while the job runs. It
// checks that there is one job, and that its weights are equal to those of an undisturbed run.
func TestControllerRestarts(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(fashion, "restarted", 2, 1, 12, 96))
	whole := s.submit("job.toml", "--run-dir", "runs/whole")
	s.completed(whole)
	restarted := make(chan error)
	go func() { restarted <- s.RestartController(t.Context(), time.Second) }()
	id := s.submit("job.toml")
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "some steps", func() bool { return len(figures(t, s.run("restarted"))) > 4 })
	if strings.Contains(s.log("restarted", id), "finished:") {
		t.Error("the job had finished before slurmctld restarted")
	}
	if err := s.RestartController(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	s.completed(id)
	mustContain(t, s.log("restarted", id), "finished: 12 epochs")
	if got, want := weights(t, s.run("restarted")), weights(t, s.run("whole")); got != want {
		t.Errorf("other weights:\n%s\n%s", got, want)
	}
	o := finish(t, s.Command(t.Context(), "scontrol", "show", "jobs", "--oneliner"))
	if n := strings.Count(o.stdout, "JobId="); n != 2 {
		t.Errorf("%d jobs, want 2: %v", n, o)
	}
}

// TestControllerRestartsDuringRequeue stops slurmctld for some seconds while a job requests its
// requeue. It checks that the job is requeued once and resumes.
func TestControllerRestartsDuringRequeue(t *testing.T) {
	s := newSite(t, cluster.Options{})
	text := strings.Replace(fmt.Sprintf(fashion, "again", 2, 1, 100000, 32), `time = "00:10:00"`, "time = \"00:10:00\"\nsignal_before_end = \""+signalBefore+"\"", 1)
	text = strings.NewReplacer("50 steps", "1000 steps", "100 steps", "5000 steps").Replace(text)
	s.write("job.toml", text+"[restart]\nrequeue = 1\n")
	id := s.submit("job.toml")
	s.reachTimeLimit("again", id, 1)
	if err := s.RestartController(t.Context(), 3*time.Second); err != nil {
		t.Fatal(err)
	}
	waitForText(t, filepath.Join(s.run("again"), "slurm-"+id+".out"), "stopped after step") // usually while slurmctld was stopped
	extendTimeLimit(t, s.Cluster, id)
	startRequeued(t, s.Cluster, id)
	waitForText(t, filepath.Join(s.run("again"), "slurm-"+id+".out"), "resuming after step")
	s.checkRequeuedOnce(id)
	mustContain(t, s.log("again", id), "requeued as job "+id+" (1 of 1)")
	if o := s.ddpbatch("cancel", "runs/again"); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "CANCELLED") // until then the job writes to its run directory
}
