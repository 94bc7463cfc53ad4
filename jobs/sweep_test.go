package jobs

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func sameJob(t testing.TB, got, want *Job) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Train, want, want.Train)
	}
}

// valuesOf are an element's settings in one line.
func valuesOf(e Element) string {
	var all []string
	for _, s := range e.Values {
		all = append(all, s.Key+"="+s.Text())
	}
	return strings.Join(all, " ")
}

func TestSweepGrid(t *testing.T) {
	job := load(t, "testdata/good/sweep-grid.toml")
	want := []string{
		"train.optimizer.lr=0.1 train.batch=32", "train.optimizer.lr=0.1 train.batch=64", "train.optimizer.lr=0.1 train.batch=128",
		"train.optimizer.lr=0.01 train.batch=32", "train.optimizer.lr=0.01 train.batch=64", "train.optimizer.lr=0.01 train.batch=128",
	}
	if job.Name != "sweep" || job.Sweep.Throttle != 2 || len(job.Sweep.Elements) != len(want) {
		t.Fatalf("got %+v", job.Sweep)
	}
	for i, e := range job.Sweep.Elements {
		if e.Index != i || valuesOf(e) != want[i] || string(e.Job.Name) != fmt.Sprintf("sweep-%d", i) || e.Job.Sweep != nil {
			t.Errorf("element %d: %s, %+v", i, valuesOf(e), e.Job)
		}
	}
	e := job.Sweep.Elements[4]
	if e.Job.Train.Batch != 64 || e.Job.Train.Optimizer.LR != 0.01 || job.Sweep.Elements[0].Job.Train.Batch != 32 {
		t.Errorf("element 4 trains %+v", e.Job.Train)
	}
	// What is kept of an element is a job file that makes the same job.
	text, err := e.Job.Source()
	if err != nil {
		t.Fatal(err)
	}
	again := parse(t, string(text))
	e.Job.layout, again.layout = nil, nil
	sameJob(t, again, e.Job)
}

func TestSweepList(t *testing.T) {
	job := load(t, "testdata/good/sweep-list.toml")
	if n := len(job.Sweep.Elements); n != 2 {
		t.Fatalf("%d elements", n)
	}
	for i, want := range []string{"command.argv=[train --lr 0.1] setup.env.SEED=1", "command.argv=[train --lr 0.01] setup.env.SEED=2"} {
		if e := job.Sweep.Elements[i]; valuesOf(e) != want || len(e.Job.Command.Argv) != 3 || e.Job.Setup.Env["SEED"] != Text(fmt.Sprint(i+1)) {
			t.Errorf("element %d: %s, %+v", i, valuesOf(e), e.Job.Command)
		}
	}
}

func TestSweepRandom(t *testing.T) {
	job, again := load(t, "testdata/good/sweep-random.toml"), load(t, "testdata/good/sweep-random.toml")
	if n := len(job.Sweep.Elements); n != 20 {
		t.Fatalf("%d elements", n)
	}
	seeds, small := map[Seed]bool{}, 0
	for i, e := range job.Sweep.Elements {
		if valuesOf(e) != valuesOf(again.Sweep.Elements[i]) {
			t.Errorf("element %d differs from one time to the next: %s, %s", i, valuesOf(e), valuesOf(again.Sweep.Elements[i]))
		}
		tr := e.Job.Train
		if lr := tr.Optimizer.LR; lr < 1e-4 || lr > 0.1 {
			t.Errorf("element %d has learning rate %g", i, lr)
		} else if lr < 0.01 {
			small++
		}
		if m := tr.Optimizer.Momentum; m < 0.5 || m > 0.99 {
			t.Errorf("element %d has momentum %g", i, m)
		}
		if tr.Batch != 16 && tr.Batch != 32 {
			t.Errorf("element %d has batch %d", i, tr.Batch)
		}
		seeds[tr.Seed] = true
	}
	// Two thirds of the logarithm's range is below 0.01, and of the plain range a tenth.
	if small < 8 {
		t.Errorf("%d of 20 learning rates are below 0.01", small)
	}
	if len(seeds) != 4 || !seeds[0] || !seeds[3] {
		t.Errorf("whole numbers drawn from 0 to 3: %v", seeds)
	}
	other, err := Parse("s", []byte(mustSource(t, job)), overrides(t, "sweep.random.seed=8")...)
	if err != nil || valuesOf(other.Sweep.Elements[0]) == valuesOf(job.Sweep.Elements[0]) {
		t.Errorf("another seed draws the same values (%v)", err)
	}
}

func mustSource(t *testing.T, j *Job) string {
	t.Helper()
	text, err := j.Source()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
