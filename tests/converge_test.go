package tests

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// An evaluatedExample is a shipped job file that this machine can train, with the arguments for it.
type evaluatedExample struct {
	file string // in jobs/examples, or the kind of a starter
	args []string
}

// TestExamplesEndAtTheirBest trains the shipped job files. It checks that the last evaluation is
// within 1% of the best one, in loss and in accuracy. For a job without held-out data it compares
// the mean training loss of the epochs.
//
// Two kinds are not trained here. gpt2-tokens needs 10 billion tokens and weeks on a CPU.
// container, ddp-script, mpi, torchrun, and the starters command and torchrun run external programs
// without evaluations.
func TestExamplesEndAtTheirBest(t *testing.T) {
	starter := func(kind string) string { return "starter " + kind }
	examples := []evaluatedExample{
		{starter("mlp"), nil},
		{starter("linear"), nil},
		// A quarter of the work, to save minutes. The optimizer and the number of steps are
		// unchanged.
		{starter("cnn"), []string{"--set", "train.model.channels=[16, 32]"}},
		{starter("gpt"), []string{"--set", "train.model.width=64"}},
		{"cnn", nil},
		{"demo", nil},
		// A global batch of 192 samples, as on six ranks.
		{"fashion-mnist", []string{"--set", "train.batch=96"}},
		{"gpt-text", []string{"--set", "train.model.width=64"}}, // narrower, to save minutes
		{"linear", nil},
	}
	for element := range 6 {
		examples = append(examples, evaluatedExample{"sweep", []string{"--element", fmt.Sprint(element)}})
	}
	for _, e := range examples {
		t.Run(e.file, func(t *testing.T) {
			dir := t.TempDir()
			text, err := os.ReadFile("../jobs/examples/gpt-text.txt")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"gpt-text.txt", "input.txt"} {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(dir, "job.toml")
			var kind string
			if _, err := fmt.Sscanf(e.file, "starter %s", &kind); err == nil {
				if o := here(t, dir, "init", "--kind", kind, "job.toml"); o.code != 0 {
					t.Fatal(o)
				}
			} else if text, err := os.ReadFile(filepath.Join("../jobs/examples", e.file+".toml")); err != nil {
				t.Fatal(err)
			} else if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"launch", "job.toml", "-n", "2", "--set", `train.log_every="1 step"`, "--run-dir", "run"}, e.args...)
			if o := here(t, dir, args...); o.code != 0 {
				t.Fatal(o)
			}
			run := filepath.Join(dir, "run")
			if elements, _ := filepath.Glob(filepath.Join(run, "elements", "*")); len(elements) == 1 {
				run = elements[0]
			}
			checkLastIsBest(t, run)
		})
	}
}

// checkLastIsBest compares the last evaluation of a run with the best one.
func checkLastIsBest(t *testing.T, run string) {
	t.Helper()
	var losses, accuracies, trained []float64
	steps := map[int]float64{} // by epoch
	for _, r := range figures(t, run) {
		switch r.Kind {
		case "eval":
			losses = append(losses, float64(*r.Loss))
			if r.Accuracy != nil {
				accuracies = append(accuracies, float64(*r.Accuracy))
			}
		case "train":
			for len(trained) <= r.Epoch {
				trained = append(trained, 0)
			}
			trained[r.Epoch] += float64(*r.Loss)
			steps[r.Epoch]++
		}
	}
	if len(losses) == 0 {
		for epoch, sum := range trained {
			losses = append(losses, sum/steps[epoch])
		}
	}
	if len(losses) < 2 {
		t.Fatalf("got %d evaluations, want at least 2", len(losses))
	}
	best, last := math.Inf(1), losses[len(losses)-1]
	for _, v := range losses {
		best = min(best, v)
	}
	t.Logf("loss %.4f at the end, %.4f at best; accuracies %.4f", last, best, accuracies)
	if !(last <= 1.01*best) {
		t.Errorf("got loss %.4f at the end, want at most 1%% above the best loss %.4f: %.4f", last, best, losses)
	}
	for _, v := range accuracies {
		if last := accuracies[len(accuracies)-1]; !(last >= 0.99*v) {
			t.Errorf("got accuracy %.4f at the end, want at most 1%% below %.4f", last, v)
		}
	}
}
