package tests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// divided is a job of one epoch with buckets of many sizes.
const divided = `name = "%s"
[slurm]
nodes = %d
tasks_per_node = %d
time = "00:10:00"
[train]
strategy = "%s"
epochs = 1
batch = 5
seed = 1
log_every = "10 steps"
first_bucket = "4 KiB"
bucket = "256 KiB"
[train.model]
kind = "mlp"
hidden = [200, 100]
[train.data]
kind = "synthetic"
task = "classification"
samples = %d
inputs = 200
outputs = 10
[train.optimizer]
kind = "adamw"
lr = 0.001
`

// TestStrategiesOverNodes checks on two nodes with two ranks each that all strategies give
// bit-identical weights, and that an interrupted run with sharded weights resumes with ddp on a
// different number of ranks.
func TestStrategiesOverNodes(t *testing.T) {
	s := newSite(t, cluster.Options{})
	names := []string{"ddp", "zero1", "zero2", "zero3"}
	var ids []string
	for _, name := range names {
		s.write(name+".toml", fmt.Sprintf(divided, name, 2, 2, name, 4000))
		ids = append(ids, s.submit(name+".toml"))
	}
	for i, name := range names {
		s.completed(ids[i])
		mustContain(t, s.log(name, ids[i]), "4 ranks on 2 nodes", "finished: 1 epoch,")
		if got, want := weights(t, s.run(name)), weights(t, s.run("ddp")); got != want {
			t.Errorf("%s: other weights than with ddp:\n%s\n%s", name, got, want)
		}
	}

	const batch, samples = 5, 40_000
	s.write("cut.toml", fmt.Sprintf(divided, "cut", 2, 2, "zero3", samples))
	id := s.submit("cut.toml")
	waitUntil(t, "the run to be under way", func() bool {
		f := figures(t, s.run("cut"))
		return len(f) > 0 && f[len(f)-1].Step >= 150
	})
	if o := s.ddpbatch("cancel", "runs/cut"); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "CANCELLED")
	s.write("cut.toml", fmt.Sprintf(divided, "cut", 3, 1, "ddp", samples))
	id = s.submit("cut.toml")
	s.completed(id)
	log := s.log("cut", id)
	mustContain(t, log, "3 ranks on 3 nodes", "finished: 1 epoch,")
	_, after, _ := strings.Cut(log, "resuming after step ")
	digits := strings.IndexFunc(after, func(c rune) bool { return c < '0' || c > '9' })
	stopped, err := strconv.Atoi(after[:max(digits, 0)])
	if err != nil || stopped < 100 {
		t.Fatalf("the log does not have the step at which the run resumed:\n%s", log)
	}
	// Each sample is used once: four ranks have processed their batches, and three ranks share the
	// rest.
	left := samples - stopped*4*batch
	each := (left + 2) / 3
	want := strconv.Itoa(stopped + (each+batch-1)/batch)
	if last, _, _ := strings.Cut(weights(t, s.run("cut")), " "); last != want {
		t.Errorf("stopped after step %d, the run ended after step %s, want %s", stopped, last, want)
	}
}
