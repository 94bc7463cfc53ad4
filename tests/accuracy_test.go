package tests

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAccuracyEqualsPyTorch checks that an epoch of Fashion-MNIST reaches PyTorch's accuracy. Both
// programs start with the same weights and take the same samples. They differ by rounding only,
// which changes the class of single images after 900 steps.
func TestAccuracyEqualsPyTorch(t *testing.T) {
	needsPyTorch(t)
	const images = "/usr/share/datasets/fashion-mnist"
	script := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/fashion_accuracy.py", "--data", images,
		"--batch", "64", "--lr", "0.01", "--seeds", "0", "1", "2", "3", "4")
	script.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	o := finish(t, script)
	var theirs struct {
		Accuracies []float64 `json:"accuracies"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &theirs); err != nil || len(theirs.Accuracies) != 5 {
		t.Fatalf("%v: %v", err, o)
	}
	var sum float64
	for seed, want := range theirs.Accuracies {
		dir := t.TempDir()
		spec := fmt.Sprintf(`name = "accuracy"
[train]
epochs = 1
batch = 64
seed = %d
[train.model]
kind = "mlp"
hidden = [128]
[train.data]
kind = "idx"
path = %q
[train.optimizer]
kind = "sgd"
lr = 0.01
momentum = 0.9
`, seed, images)
		if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := here(t, dir, "launch", "job.toml", "-n", "1", "--run-dir", "run"); o.code != 0 {
			t.Fatal(o)
		}
		got := math.NaN()
		for _, r := range figures(t, filepath.Join(dir, "run")) {
			if r.Kind == "eval" {
				got = float64(*r.Accuracy)
			}
		}
		t.Logf("seed %d: accuracy %.4f, PyTorch's %.4f", seed, got, want)
		if !(math.Abs(got-want) <= 0.02) {
			t.Errorf("seed %d: accuracy %.4f, PyTorch's %.4f", seed, got, want)
		}
		sum += got - want
	}
	// The standard deviation of the accuracy across seeds is about 0.5 percentage points.
	if mean := sum / 5; !(math.Abs(mean) <= 0.005) {
		t.Errorf("over 5 seeds, accuracy differs by %.4f in the mean", mean)
	}
}
