package tests

import (
	"fmt"
	"strings"
	"testing"
)

// slurmctld restarts while a job is submitted and again while it runs: there is one job,
// and it ends with the weights of an undisturbed one.
func TestControllerRestarts(t *testing.T) {
	s := newSite(t)
	s.write("job.toml", fmt.Sprintf(fashion, "restarted", 2, 1, 6, 96))
	whole := s.submit("job.toml", "--run-dir", "runs/whole")
	s.completed(whole)
	restarted := make(chan error)
	go func() { restarted <- s.RestartController(t.Context()) }()
	id := s.submit("job.toml")
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "some steps", func() bool { return len(figures(t, s.run("restarted"))) > 4 })
	if err := s.RestartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(s.log("restarted", id), "finished:") {
		t.Error("the job had finished before slurmctld restarted")
	}
	s.completed(id)
	mustContain(t, s.log("restarted", id), "finished: 6 epochs")
	if got, want := weights(t, s.run("restarted")), weights(t, s.run("whole")); got != want {
		t.Errorf("other weights:\n%s\n%s", got, want)
	}
	o := finish(t, s.Command(t.Context(), "scontrol", "show", "jobs", "--oneliner"))
	if n := strings.Count(o.stdout, "JobId="); n != 2 {
		t.Errorf("%d jobs, want 2: %v", n, o)
	}
}
