package tests

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPyTorchReadsATrainedGPT trains a GPT with two ranks on a text. It checks that PyTorch loads
// the model, computes the same held-out loss, and continues a prompt beyond the context length like
// ddpbatch sample. Then ddpbatch loads weights that PyTorch has changed and written, and computes the
// same held-out loss as PyTorch.
func TestPyTorchReadsATrainedGPT(t *testing.T) {
	needsPyTorch(t)
	dir := t.TempDir()
	text, err := os.ReadFile("../jobs/examples/gpt-text.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"text.txt": string(text[:20000]),
		"job.toml": `name = "gpt"
[slurm]
tasks_per_node = 2
[train]
epochs = 16
batch = 8
[train.model]
kind = "gpt"
layers = 2
heads = 4
width = 64
context = 32
[train.data]
kind = "text"
path = "text.txt"
holdout = 0.1
[train.optimizer]
kind = "adamw"
lr = 0.003
clip_norm = 1.0
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if o := here(t, dir, "launch", "job.toml", "-n", "2", "--run-dir", "run"); o.code != 0 {
		t.Fatal(o)
	}
	const prompt = "The job "
	ours := here(t, dir, "sample", "run", "--prompt", prompt, "--tokens", "60", "--temperature", "0", "--json")
	var sampled struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal([]byte(ours.stdout), &sampled); err != nil || ours.code != 0 {
		t.Fatalf("%v: %v", err, ours)
	}
	weights, err := filepath.Glob(filepath.Join(dir, "run/checkpoints/step-*/model.safetensors"))
	if err != nil || len(weights) == 0 {
		t.Fatalf("no weights: %v", err)
	}
	for _, more := range [][]string{{"-o", "model.pt"}, {"--optimizer", "-o", "optimizer.pt"}} {
		if o := here(t, dir, append([]string{"checkpoint", "export", "run"}, more...)...); o.code != 0 {
			t.Fatal(o)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/gpt_checkpoint.py", "--weights", weights[len(weights)-1],
		"--state-dict", filepath.Join(dir, "model.pt"), "--optimizer", filepath.Join(dir, "optimizer.pt"), "--write", filepath.Join(dir, "torch.safetensors"), "--text", filepath.Join(dir, "text.txt"), "--heads", "4", "--holdout", "0.1", "--prompt", prompt, "--tokens", "60")
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	var theirs struct {
		Loss  float64 `json:"loss"`
		After float64 `json:"after"`
		Text  string  `json:"text"`
	}
	if o := finish(t, cmd); json.Unmarshal([]byte(o.stdout), &theirs) != nil {
		t.Fatal(o)
	}
	heldOut := func(run string) float64 {
		loss := math.NaN()
		for _, r := range figures(t, filepath.Join(dir, run)) {
			if r.Kind == "eval" {
				loss = float64(*r.Loss)
			}
		}
		return loss
	}
	loss := heldOut("run")
	t.Logf("held-out loss %.6f, in PyTorch %.6f; %q", loss, theirs.Loss, theirs.Text)
	if !(math.Abs(loss-theirs.Loss) <= 1e-5*loss) {
		t.Errorf("held-out loss %v, in PyTorch %v", loss, theirs.Loss)
	}
	if got := strings.TrimPrefix(sampled.Text, prompt); got != theirs.Text || len([]rune(got)) != 60 {
		t.Errorf("ddpbatch sample goes on with %q, PyTorch with %q", got, theirs.Text)
	}
	// With this learning rate, an epoch does not change the weights.
	if o := here(t, dir, "launch", "job.toml", "-n", "2", "--run-dir", "back", "--set", "train.model.weights=torch.safetensors", "--set", "train.epochs=1", "--set", "train.optimizer.lr=1e-12"); o.code != 0 {
		t.Fatal(o)
	}
	back := heldOut("back")
	t.Logf("held-out loss of PyTorch's weights %.6f, in PyTorch %.6f", back, theirs.After)
	if !(math.Abs(back-theirs.After) <= 1e-5*back) || math.Abs(back-loss) < 1e-4*loss {
		t.Errorf("held-out loss of PyTorch's weights %v, in PyTorch %v, before the step %v", back, theirs.After, loss)
	}
}
