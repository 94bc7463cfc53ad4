package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPyTorchGoesOn checks that PyTorch resumes from the exported weights and optimizer state, with
// the learning rate of the schedule, and that after one step its weights are equal to those of
// ddpbatch.
func TestPyTorchGoesOn(t *testing.T) {
	needsPyTorch(t)
	var table strings.Builder
	table.WriteString("x,y\n")
	for i := range 16 {
		fmt.Fprintf(&table, "%d,%d\n", i%5, (i*7)%11)
	}
	script := []string{"testdata/torch_goes_on.py"}
	for kind, settings := range map[string]string{
		"sgd":   "momentum = 0.9\nweight_decay = 0.1\nnesterov = true\n",
		"adam":  "weight_decay = 0.1\nbeta1 = 0.8\n",
		"adamw": "weight_decay = 0.1\nbeta2 = 0.99\neps = 1e-6\n",
		// Two parameter groups. With weight decay for all parameters the weights would differ after
		// one step.
		"adamw-groups": "weight_decay = 5\ndecay = \"matrices\"\n",
		"sgd-groups":   "weight_decay = 5\nmomentum = 0.9\ndecay = \"matrices\"\n",
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"data.csv": table.String(), "job.toml": fmt.Sprintf(onTable, strings.TrimSuffix(kind, "-groups"), settings)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{
			{"launch", "job.toml", "-n", "2", "--run-dir", "run"},
			{"checkpoint", "export", "run", "--step", "9", "-o", "model.pt"},
			{"checkpoint", "export", "run", "--step", "9", "--optimizer", "-o", "optimizer.pt"},
			{"checkpoint", "export", "run", "--step", "10", "-o", "after.pt"},
		} {
			if o := here(t, dir, args...); o.code != 0 {
				t.Fatalf("%v: %v", args, o)
			}
		}
		script = append(script, kind, dir)
	}
	o := finish(t, exec.CommandContext(t.Context(), "/usr/bin/python3", script...))
	if o.code != 0 || strings.Count(o.stdout, ": one step, the same weights\n") != 5 {
		t.Error(o)
	}
}

// TestDistributedCheckpoint checks that an exported distributed checkpoint of PyTorch has the tensors
// and values of PyTorch's own conversion, bit for bit. Debian 12 has a PyTorch without this format.
func TestDistributedCheckpoint(t *testing.T) {
	const python = "/usr/bin/python3"
	dir := t.TempDir()
	o := finish(t, exec.CommandContext(t.Context(), python, "-B", "../trainer/dcp/testdata/save.py", filepath.Join(dir, "saved")))
	if strings.Contains(o.stderr, "No module named 'torch.distributed.checkpoint'") {
		t.Skip("PyTorch is too old: run this test with tests/debian13.sh")
	}
	if o.code != 0 {
		t.Fatal(o)
	}
	for _, output := range []string{"all.pt", "all.safetensors"} {
		if o := here(t, dir, "checkpoint", "export", "saved", "-o", output); o.code != 0 {
			t.Fatal(o)
		}
	}
	compare, err := filepath.Abs("testdata/torch_dcp.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-B", compare, "saved", "all.pt", "all.safetensors")
	cmd.Dir = dir
	if o := finish(t, cmd); o.code != 0 || o.stdout != "28 tensors, bit for bit\n" {
		t.Error(o)
	}
}

// onTable is a job on two ranks in which each step takes all samples.
const onTable = `name = "small"
[train]
epochs = 12
batch = 8
strategy = "zero1"
[train.model]
kind = "mlp"
hidden = [4]
[train.data]
kind = "csv"
path = "data.csv"
task = "regression"
[train.optimizer]
kind = %q
lr = 0.01
%s[train.schedule]
kind = "cosine"
steps = 20
warmup = 3
[checkpoint]
every = "1 step"
keep = 20
`
