package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestTorchrunOutputOptions checks torchrun's own options for the output of workers: ddpbatch shows
// and stores only what they leave, and still names a worker that fails without output. The workers
// use the store of their torchrun. Debian 12 has a torchrun without --local-ranks-filter.
func TestTorchrunOutputOptions(t *testing.T) {
	needsPyTorch(t)
	if o := finish(t, exec.CommandContext(t.Context(), "/usr/bin/torchrun", "--help")); !strings.Contains(o.stdout, "--local-ranks-filter") {
		t.Skip("PyTorch is too old: run this test with tests/debian13.sh")
	}
	const program = `import os, sys
import torch
import torch.distributed as dist
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
dist.init_process_group("gloo")
rank, total = dist.get_rank(), torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
dist.destroy_process_group()
os.write(1, b"rank %d: the sum is %d\n" % (rank, total.item()))
sys.exit(9 if sys.argv[1:] == [str(rank)] else 0)
`
	for name, tt := range map[string]struct {
		options, failing string
		code             int
		shown            []int             // ranks whose lines are in the log of the run
		files            map[string]string // patterns of files, and their content
	}{
		// Rank 0 has no output, and fails.
		"filter": {`"--local-ranks-filter", "1"`, "0", 1, []int{1}, map[string]string{
			"run/logs/attempt-0001/rank-00001.out": "rank 1: the sum is 3\n",
		}},
		"log directory": {`"--log-dir", "torchlogs", "--redirects", "3"`, "", 0, nil, map[string]string{
			"torchlogs/*/attempt_0/0/stdout.log": "rank 0: the sum is 3\n", "torchlogs/*/attempt_0/1/stdout.log": "rank 1: the sum is 3\n",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"sums.py": program, "job.toml": fmt.Sprintf(`name = "sums"
[slurm]
tasks_per_node = 2
[setup]
env = { PATH = "/usr/bin:/bin" }
[command]
launcher = "torchrun"
output = "labeled"
argv = [%s, "sums.py", %q]
`, tt.options, tt.failing)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := here(t, dir, "launch", "job.toml", "-n", "2", "--run-dir", "run")
			if o.code != tt.code || tt.code != 0 && !strings.Contains(o.stderr, "RANK=0 ended with exit code 9") {
				t.Error(o)
			}
			for rank := range 2 {
				line := fmt.Sprintf("[rank %d] rank %[1]d: the sum is 3\n", rank)
				if got := strings.Contains(o.stdout, line); got != slices.Contains(tt.shown, rank) {
					t.Errorf("the log has the line of rank %d: %v\n%v", rank, got, o)
				}
			}
			for pattern, want := range tt.files {
				found, err := filepath.Glob(filepath.Join(dir, pattern))
				if err != nil || len(found) != 1 {
					t.Errorf("%s: found %q, %v", pattern, found, err)
					continue
				}
				if got, err := os.ReadFile(found[0]); err != nil || string(got) != want {
					t.Errorf("%s: got %q, want %q (%v)", pattern, got, want, err)
				}
			}
		})
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
