package tests

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// needsPyTorch skips a test if PyTorch is missing. In CI it fails the test.
func needsPyTorch(t *testing.T) {
	t.Helper()
	if exec.Command("/usr/bin/python3", "-c", "import torch").Run() == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("PyTorch is missing: run tests/setup.sh")
	}
	t.Skip("PyTorch is missing: run tests/setup.sh")
}

// TestParityWithPyTorch trains the same model in PyTorch and in ddpbatch, with the same initial
// weights and sample order. It checks that the losses of the first 50 steps are equal.
func TestParityWithPyTorch(t *testing.T) {
	needsPyTorch(t)
	const tail = `
[train.optimizer]
kind = "sgd"
lr = 0.05
momentum = 0.9
`
	for _, tt := range []struct {
		name, ranks string
		args        []string
		spec        string
	}{
		{"mlp", "1", []string{"--model", "mlp", "--hidden", "128", "--data", "/usr/share/datasets/fashion-mnist"}, `name = "mlp"
[train]
epochs = 1
batch = 32
log_every = "1 step"
[train.model]
kind = "mlp"
hidden = [128]
[train.data]
kind = "idx"
path = "/usr/share/datasets/fashion-mnist"
` + tail},
		{"mlp on three ranks", "3", []string{"--model", "mlp", "--hidden", "64", "--world-size", "3", "--batch", "16", "--data", "/usr/share/datasets/fashion-mnist"}, `name = "mlp3"
[slurm]
tasks_per_node = 3
[train]
epochs = 1
batch = 16
log_every = "1 step"
[train.model]
kind = "mlp"
hidden = [64]
[train.data]
kind = "idx"
path = "/usr/share/datasets/fashion-mnist"
` + tail},
		{"linear on two ranks", "2", []string{"--model", "linear", "--world-size", "2"}, `name = "linear"
[slurm]
tasks_per_node = 2
[train]
epochs = 1
batch = 32
log_every = "1 step"
[train.model]
kind = "linear"
[train.data]
kind = "synthetic"
task = "regression"
samples = 32000
inputs = 20
outputs = 1
` + tail},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(tt.spec), 0o600); err != nil {
				t.Fatal(err)
			}
			if o := here(t, dir, "launch", "job.toml", "-n", tt.ranks, "--run-dir", "run"); o.code != 0 {
				t.Fatal(o)
			}
			cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{"../trainer/nn/testdata/torch_reference.py", "--lr", "0.05"}, tt.args...)...)
			cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
			o := finish(t, cmd)
			var want struct {
				Losses []float64 `json:"losses"`
			}
			if err := json.Unmarshal([]byte(o.stdout), &want); err != nil || len(want.Losses) != 50 {
				t.Fatalf("%v: %v", err, o)
			}
			ours := map[int]float64{}
			for _, r := range figures(t, filepath.Join(dir, "run")) {
				if r.Kind == "train" {
					ours[r.Step] = float64(*r.Loss)
				}
			}
			worst := 0.0
			for i, w := range want.Losses {
				got, ok := ours[i+1]
				if !ok {
					t.Fatalf("step %d is missing", i+1)
				}
				worst = max(worst, math.Abs(got-w)/w)
			}
			t.Logf("largest relative difference over 50 steps: %.1e", worst)
			if !(worst <= 1e-5) {
				t.Errorf("losses differ by up to %.1e, more than 1e-5", worst)
			}
		})
	}
}
