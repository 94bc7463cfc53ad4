//go:build cuda

package gpusim_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// build builds the program with GPU support.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ddpbatch")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/ddpbatch").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// launched is the result of `ddpbatch launch`.
type launched struct {
	code   int
	output string
	took   time.Duration
	dir    string
}

// launch runs a job with one simulated GPU for each of n ranks. In set, "KEY=VALUE" with a dot in
// the key overrides the job; all others are environment variables.
func launch(t *testing.T, program, job, dir string, n int, set ...string) launched {
	t.Helper()
	file := filepath.Join(t.TempDir(), "job.toml")
	check(t, os.WriteFile(file, []byte(job), 0o600))
	c := exec.CommandContext(t.Context(), program, "launch", file, "-n", fmt.Sprint(n), "--run-dir", dir)
	c.Env = gpusim.Environ(os.Getenv("GPUSIM_LIBRARIES"), fmt.Sprint("GPUSIM_DEVICES=", n))
	for _, s := range set {
		if name, _, _ := strings.Cut(s, "="); strings.Contains(name, ".") {
			c.Args = append(c.Args, "--set", s)
		} else {
			c.Env = append(c.Env, s)
		}
	}
	began := time.Now()
	out, _ := c.CombinedOutput() // the exit code shows it
	return launched{c.ProcessState.ExitCode(), string(out), time.Since(began), dir}
}

// losses returns the losses of all steps of a finished run.
func (l launched) losses(t *testing.T) map[int]float64 {
	t.Helper()
	if l.code != 0 || !strings.Contains(l.output, "finished: ") {
		t.Fatalf("exit code %d\n%s", l.code, l.output)
	}
	text := must[[]byte](t)(os.ReadFile(filepath.Join(l.dir, "metrics.jsonl")))
	all := map[int]float64{}
	for line := range strings.Lines(string(text)) {
		var r metrics.Record
		check(t, json.Unmarshal([]byte(line), &r))
		if r.Kind == "train" {
			all[r.Step] = float64(*r.Loss)
		}
	}
	return all
}

// near checks losses against others, with a relative tolerance.
func near(t *testing.T, what string, got, want map[int]float64, within float64) {
	t.Helper()
	if len(got) != len(want) || len(got) < 10 {
		t.Errorf("%s: %d steps, want %d", what, len(got), len(want))
	}
	for step, loss := range want {
		if !(math.Abs(got[step]-loss) <= within*loss) {
			t.Errorf("%s, step %d: loss %v, want %v", what, step, got[step], loss)
			return
		}
	}
}

// combinations lists strategies and numbers of GPUs to test. Every strategy with each number and
// each model would take minutes.
var combinations = map[string][]struct {
	ranks     int
	precision string
	set       []string
}{
	"mlp": {
		{1, "fp32", []string{""}},
		{2, "fp32", []string{"train.backend=nccl", "train.backend=tcp train.strategy=zero2"}},
		{4, "fp32", []string{"", "train.strategy=zero1", "train.strategy=zero2 checkpoint.async=true", "train.strategy=zero3"}},
	},
	"gpt": {
		{1, "fp32", []string{""}},
		{2, "fp32", []string{"", "train.strategy=zero1", "train.strategy=zero2", "train.strategy=zero3 checkpoint.async=true"}},
		{4, "fp32", []string{"train.backend=nccl train.strategy=zero3"}},
		{2, "bf16", []string{"", "train.strategy=zero3"}},
	},
}

// TestLaunchOnGPUs checks that jobs with one process per GPU match the CPU: with every strategy,
// over NCCL, through host memory, and if a run changes between them.
func TestLaunchOnGPUs(t *testing.T) {
	gpusim.Require(t)
	program := build(t)
	path := t.TempDir() + "/text.txt"
	check(t, os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 50)), 0o600))
	small := strings.NewReplacer("TEXT", path, "batch = 32", "batch = 4", "width = 32", "width = 16", "accumulate = 2\n", "first_bucket = \"4 KiB\"\nbucket = \"8 KiB\"\n")
	for name, text := range trainingJobs {
		text = small.Replace(text)
		for _, c := range combinations[name] {
			precision, within := "train.precision="+c.precision, 1e-4
			if c.precision == "bf16" {
				within = 1e-2
			}
			processors := launch(t, program, text, t.TempDir(), c.ranks, precision).losses(t)
			if name == "mlp" && c.ranks == 2 && len(processors) < 100 {
				t.Errorf("%d steps: replicas were never compared", len(processors))
			}
			for _, set := range c.set {
				got := launch(t, program, text, t.TempDir(), c.ranks, append(strings.Fields(set), precision, "train.device=cuda")...).losses(t)
				near(t, fmt.Sprint(name, " in ", c.precision, " on ", c.ranks, ", ", set), got, processors, within)
			}
		}
		if name != "gpt" {
			continue
		}
		// None of these changes affects the result.
		want := launch(t, program, text, t.TempDir(), 2).losses(t)
		dir := t.TempDir()
		launch(t, program, text, dir, 2, "train.epochs=1", "train.device=cuda", "train.strategy=zero3").losses(t)
		launch(t, program, text, dir, 2, "train.epochs=2", "train.device=cpu").losses(t)
		near(t, name+" here and there", launch(t, program, text, dir, 2, "train.device=cuda", "train.strategy=zero1").losses(t), want, 1e-4)
	}
}

// TestStrategiesOnGPUs checks that all strategies train the same weights in bf16, bit for bit, although
// cuBLASLt and the kernel sum the gradients of biases in different orders.
func TestStrategiesOnGPUs(t *testing.T) {
	gpusim.Require(t)
	program := build(t)
	path := filepath.Join(t.TempDir(), "text.txt")
	check(t, os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 140)), 0o600))
	text := strings.NewReplacer("TEXT", path).Replace(trainingJobs["gpt"])
	run := func(set ...string) (weights string) { // SHA-256
		all := append(set, "train.device=cuda", "train.precision=bf16", "train.backend=tcp", "train.epochs=1", "train.first_bucket=4 KiB", "train.bucket=4 KiB")
		l := launch(t, program, text, t.TempDir(), 2, all...)
		l.losses(t)
		for _, e := range must[[]checkpoint.Entry](t)(checkpoint.List(filepath.Join(l.dir, "checkpoints"))) {
			for _, f := range e.Manifest.Files {
				if e.Manifest.Finished && f.Name == checkpoint.ModelFile {
					weights = f.SHA256
				}
			}
		}
		if weights == "" {
			t.Fatalf("%q: no weights", set)
		}
		return weights
	}
	for accumulate, sets := range map[string][]string{
		"train.accumulate=1": {"train.strategy=zero1", "train.strategy=zero2", "train.strategy=zero3"},
		"train.accumulate=2": {"train.strategy=zero1", "train.strategy=zero3,train.no_sync=true"},
	} {
		want := run(accumulate)
		for _, set := range sets {
			if run(append(strings.Split(set, ","), accumulate)...) != want {
				t.Errorf("%s %s: the weights differ from those of ddp", accumulate, set)
			}
		}
		if run(accumulate, "DDPBATCH_FUSION=bias,gelu,gelu_grad") == want {
			t.Errorf("%s: DDPBATCH_FUSION does not change the weights", accumulate)
		}
	}
}

// TestTunedLaunch checks that timing the algorithms changes no weights, for each strategy, if all
// algorithms sum in the same order, and that a resumed run does not time them again.
func TestTunedLaunch(t *testing.T) {
	gpusim.Require(t)
	program := build(t)
	path := filepath.Join(t.TempDir(), "text.txt")
	check(t, os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 60)), 0o600))
	text := strings.NewReplacer("TEXT", path).Replace(trainingJobs["gpt"])
	for _, set := range []string{"train.backend=nccl", "train.backend=tcp train.strategy=zero1", "train.strategy=zero2", "train.strategy=zero3"} {
		all := append(strings.Fields(set), "train.device=cuda", "train.precision=bf16", "train.first_bucket=4 KiB", "train.bucket=4 KiB")
		want := launch(t, program, text, t.TempDir(), 2, append(all, "train.epochs=2")...).losses(t)
		all = append(all, "train.tune_matmul=true")
		dir := t.TempDir()
		first := launch(t, program, text, dir, 2, append(all, "train.epochs=1")...)
		second := launch(t, program, text, dir, 2, append(all, "train.epochs=2")...)
		if got := second.losses(t); !maps.Equal(got, want) {
			t.Errorf("%s: losses %v, want %v", set, got, want)
		}
		const timed = "timed the algorithms of "
		if !strings.Contains(first.output, timed) || strings.Contains(second.output, timed) {
			t.Errorf("%s: timed at the wrong start:\n%s\n%s", set, first.output, second.output)
		}
		if _, err := os.Stat(filepath.Join(dir, "algorithms.json")); err != nil {
			t.Error(err)
		}
	}
}

// TestLaunchWithoutNCCL checks that a job without libnccl trains through host memory with a
// warning, and that a job that requires NCCL is rejected with a fix.
func TestLaunchWithoutNCCL(t *testing.T) {
	gpusim.Require(t)
	program := build(t)
	libraries := t.TempDir()
	for _, l := range []string{"libcuda.so.1", "libgpusim_kernels.so", "libcublasLt.so.12"} {
		check(t, os.Symlink(filepath.Join(os.Getenv("GPUSIM_LIBRARIES"), l), filepath.Join(libraries, l)))
	}
	run := func(backend string) launched {
		return launch(t, program, trainingJobs["mlp"], t.TempDir(), 2, "train.device=cuda", "train.epochs=1", "train.backend="+backend, "LD_LIBRARY_PATH="+libraries)
	}
	auto := run("auto")
	auto.losses(t)
	const warning = "warning: GPUs communicate through host memory, which is slow: rank 0: load NCCL: load libnccl.so.2: not found; NCCL comes with"
	if !strings.Contains(auto.output, warning) {
		t.Errorf("auto: want %q\n%s", warning, auto.output)
	}
	if tcp := run("tcp"); tcp.code != 0 || strings.Contains(tcp.output, "warning") {
		t.Errorf("tcp, as asked: %s", tcp.output)
	}
	asked := run("nccl")
	for _, want := range []string{"2 ranks on GPUs: rank 0: load NCCL: load libnccl.so.2: not found", "pip install nvidia-nccl-cu12"} {
		if asked.code != 1 || !strings.Contains(asked.output, want) {
			t.Errorf("nccl: exit code %d, want %q\n%s", asked.code, want, asked.output)
		}
	}
}
