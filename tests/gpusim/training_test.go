//go:build cuda

package gpusim_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
)

// Jobs for two models. The last batch of the second is smaller.
var trainingJobs = map[string]string{
	"mlp": `name = "t"
[train]
device = "cpu"
epochs = 4
batch = 32
seed = 1
log_every = "1 step"
[train.model]
kind = "mlp"
hidden = [24, 16]
dropout = 0.1
[train.data]
kind = "synthetic"
task = "classification"
samples = 224
inputs = 12
outputs = 4
[train.optimizer]
kind = "sgd"
lr = 0.1
momentum = 0.9
[checkpoint]
every = "10 steps"
`,
	"gpt": `name = "t"
[train]
device = "cpu"
epochs = 3
batch = 4
accumulate = 2
seed = 1
log_every = "1 step"
[train.model]
kind = "gpt"
layers = 2
heads = 2
width = 32
context = 16
dropout = 0.1
[train.data]
kind = "text"
path = "TEXT"
holdout = 0.2
[train.optimizer]
kind = "adamw"
lr = 0.003
clip_norm = 1.0
[checkpoint]
every = "5 steps"
`}

// train runs a job on a device, for at most n steps if that is not 0, and returns the losses of its
// steps.
func train(t *testing.T, text, device, folder string, most int) (map[int]float64, error) {
	t.Helper()
	losses, stop := map[int]float64{}, make(chan struct{})
	err := observe(t, text, device, folder, stop, func(e trainer.Event) {
		if e.Kind == trainer.Trained {
			losses[e.Step] = e.Loss
			if len(losses) == most {
				close(stop)
			}
		}
	})
	return losses, err
}

// observe runs a job on a device until it is stopped.
func observe(t *testing.T, text, device, folder string, stop chan struct{}, observe func(trainer.Event)) error {
	t.Helper()
	job := must[*jobs.Job](t)(jobs.Parse("job.toml", []byte(strings.Replace(text, `"cpu"`, `"`+device+`"`, 1))))
	comm := collective.Local(1, 20*time.Second)[0]
	defer comm.Close()
	_, err := trainer.Run(t.Context(), trainer.Options{Job: job, Run: "run", Checkpoints: folder, Comm: comm, Threads: 1, Stop: stop, Observe: observe})
	return err
}

// TestJobTrainsOnAGPU checks that a job on a GPU matches the CPU and is bit-identical if it is
// stopped and resumed.
func TestJobTrainsOnAGPU(t *testing.T) {
	path := t.TempDir() + "/text.txt"
	check(t, os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 90)), 0o600))
	list := maps.Clone(trainingJobs)
	list["gpt in bf16"] = strings.Replace(list["gpt"], "seed = 1", "seed = 1\nprecision = \"bf16\"", 1)
	for name, text := range list {
		text = strings.Replace(text, "TEXT", path, 1)
		most := 1e-4
		if strings.Contains(text, "bf16") {
			most = 1e-2
		}
		t.Run(name, func(t *testing.T) {
			want := must[map[int]float64](t)(train(t, text, "cpu", t.TempDir(), 0))
			if len(want) < 20 {
				t.Fatalf("only %d steps", len(want))
			}
			whole := must[map[int]float64](t)(train(t, text, "cuda", t.TempDir(), 0))
			if len(whole) != len(want) {
				t.Errorf("%d steps, want %d", len(whole), len(want))
			}
			for step, loss := range whole {
				if !(math.Abs(loss-want[step]) <= most*want[step]) {
					t.Errorf("step %d: loss %v, want %v", step, loss, want[step])
				}
			}
			folder := t.TempDir()
			first := must[map[int]float64](t)(train(t, text, "cuda", folder, 7))
			rest := must[map[int]float64](t)(train(t, text, "cuda", folder, 0))
			if len(first) == 0 || len(rest) == 0 || len(first)+len(rest) != len(want) {
				t.Errorf("%d and %d steps of %d", len(first), len(rest), len(want))
			}
			for step, loss := range whole {
				if again, ok := rest[step]; loss != again && (ok || loss != first[step]) {
					t.Errorf("step %d: loss %v without a stop, and %v or %v with one", step, loss, first[step], again)
				}
			}
		})
	}
}

// TestRecordedAlgorithms checks that a run with train.tune_matmul records the algorithms that it has
// timed, and that later attempts use the recorded ones: a run that is stopped and resumed then has the
// same losses, bit for bit, as one that was not stopped. The simulator's second algorithm sums in a
// different order than the others.
func TestRecordedAlgorithms(t *testing.T) {
	t.Setenv("GPUSIM_ALGORITHMS", "differ")
	path := t.TempDir() + "/text.txt"
	check(t, os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 90)), 0o600))
	text := strings.NewReplacer("TEXT", path, `"cpu"`, `"cuda"`, "seed = 1", "seed = 1\nprecision = \"bf16\"\ntune_matmul = true").Replace(trainingJobs["gpt"])
	run := func(dir string, most int) (losses map[int]float64, timed int) {
		t.Helper()
		root := must[*os.Root](t)(os.OpenRoot(dir))
		defer root.Close()
		comm := collective.Local(1, 20*time.Second)[0]
		defer comm.Close()
		losses, stop := map[int]float64{}, make(chan struct{})
		_, err := trainer.Run(t.Context(), trainer.Options{Job: must[*jobs.Job](t)(jobs.Parse("job.toml", []byte(text))), Run: "run",
			Checkpoints: dir + "/checkpoints", RunDir: root, Comm: comm, Threads: 1, Stop: stop, Observe: func(e trainer.Event) {
				switch e.Kind {
				case trainer.Tuned:
					timed = len(e.Algorithms.Products)
				case trainer.Trained:
					losses[e.Step] = e.Loss
					if len(losses) == most {
						close(stop)
					}
				}
			}})
		check(t, err)
		return losses, timed
	}
	record := func(dir string) string { return dir + "/algorithms.json" }
	read := func(dir string) string { return string(must[[]byte](t)(os.ReadFile(record(dir)))) }

	dir := t.TempDir()
	_, timed := run(dir, 1)
	var recorded struct{ GPUs []engine.Algorithms }
	check(t, json.Unmarshal([]byte(read(dir)), &recorded))
	if len(recorded.GPUs) != 1 || timed < 10 || len(recorded.GPUs[0].Products) != timed {
		t.Fatalf("timed %d multiplications and recorded %+v", timed, recorded.GPUs)
	}
	if _, timed := run(dir, 1); timed != 0 {
		t.Errorf("timed %d recorded multiplications again", timed)
	}
	check(t, os.WriteFile(record(dir), []byte("{"), 0o600))
	if _, again := run(dir, 1); again != timed {
		t.Errorf("without a valid record, timed %d multiplications, want %d", again, timed)
	}
	check(t, os.Chmod(record(dir), 0o602))
	if _, again := run(dir, 1); again != timed {
		t.Errorf("with a record that others can change, timed %d multiplications, want %d", again, timed)
	}

	// Select an algorithm for all multiplications, and add the record of another GPU.
	choose := func(number byte, workspace uint64) string {
		a := recorded.GPUs[0]
		a.Products = maps.Clone(a.Products)
		for name, one := range a.Products {
			algorithm := must[[]byte](t)(hex.DecodeString(one.Algorithm))
			algorithm[0] = number
			binary.LittleEndian.PutUint64(algorithm[8:], workspace)
			one.Algorithm = hex.EncodeToString(algorithm)
			a.Products[name] = one
		}
		instance := engine.Algorithms{Platform: a.Platform} // a part of the GPU, as with MIG
		instance.Processors /= 2
		return string(must[[]byte](t)(json.Marshal(map[string]any{"gpus": []engine.Algorithms{instance, a}})))
	}
	first, second := choose(1, 1<<20), choose(2, 0)
	whole := map[string]map[int]float64{}
	for _, content := range []string{first, second} {
		dir := t.TempDir()
		check(t, os.WriteFile(record(dir), []byte(content), 0o644)) // as a copy
		whole[content], timed = run(dir, 0)
		if timed != 0 || read(dir) != content {
			t.Errorf("timed %d recorded multiplications again", timed)
		}
	}
	if maps.Equal(whole[first], whole[second]) {
		t.Error("the recorded algorithms do not change the losses")
	}
	dir = t.TempDir()
	check(t, os.WriteFile(record(dir), []byte(second), 0o600))
	part, _ := run(dir, 7)
	rest, _ := run(dir, 0)
	maps.Copy(part, rest)
	if !maps.Equal(part, whole[second]) {
		t.Errorf("losses with a stop: %v, want %v", part, whole[second])
	}
}

// TestStepsThatAreNotFiniteOnAGPU checks that a GPU skips a non-finite step as the CPU does,
// although the host detects it only after it has launched the next step. Too many such steps, or
// a step that must not be skipped, end the run before a checkpoint is written.
func TestStepsThatAreNotFiniteOnAGPU(t *testing.T) {
	run := func(device, policy string, bad int) (seen []string, err error) {
		path, folder := t.TempDir()+"/data.csv", t.TempDir()
		check(t, os.WriteFile(path, []byte("1,1\n2,2\n"+strings.Repeat("3e38,-3e38\n", bad)+"1,1\n2,3\n"), 0o600))
		job := must[*jobs.Job](t)(jobs.Parse("job.toml", []byte(fmt.Sprintf(csvJob, device, policy, path))))
		comm := collective.Local(1, 20*time.Second)[0]
		defer comm.Close()
		_, err = trainer.Run(t.Context(), trainer.Options{Job: job, Run: "run", Checkpoints: folder, Comm: comm, Threads: 1, Observe: func(e trainer.Event) {
			switch e.Kind {
			case trainer.Skipped:
				seen = append(seen, fmt.Sprintf("%d: %v", e.Step, e.Err))
			case trainer.Trained:
				seen = append(seen, fmt.Sprintf("%d: loss %.5g", e.Step, e.Loss))
			case trainer.Saved:
				seen = append(seen, fmt.Sprintf("%d: saved", e.Step))
			}
		}})
		return seen, err
	}
	for _, c := range []struct {
		policy string
		bad    int
	}{{"skip", 3}, {"skip", 11}, {"stop", 1}} {
		want, failed := run("cpu", c.policy, c.bad)
		got, err := run("cuda", c.policy, c.bad)
		if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(failed) {
			t.Errorf("%s, %d steps: %q, %v\nwant %q, %v", c.policy, c.bad, got, err, want, failed)
		}
		if skips := c.policy == "skip" && c.bad == 3; skips != (err == nil) || skips && len(got) < 6 {
			t.Errorf("%s, %d steps: %q, %v", c.policy, c.bad, got, err)
		}
	}
}

// csvJob has samples that make the loss infinite. The host detects it at the end of the run.
const csvJob = `name = "t"
[train]
device = %q
epochs = 2
batch = 1
nonfinite = %q
log_every = "1 epoch"
[train.model]
kind = "linear"
[train.data]
kind = "csv"
task = "regression"
path = %q
shuffle = false
[train.optimizer]
kind = "adamw"
lr = 0.01
clip_norm = 1.0
`

// TestJobFailsOnAGPU checks that a run returns a failure on the GPU as its error, with the cause.
func TestJobFailsOnAGPU(t *testing.T) {
	if kind := os.Getenv("GPUSIM_TEST"); kind != "" {
		job := trainingJobs["mlp"]
		if kind == "large" { // 7 TB to save: on a machine with that much memory, the test would use it
			job = strings.NewReplacer("24, 16", strings.Repeat("40000, ", 600), "[checkpoint]", "[checkpoint]\nasync = true").Replace(job)
		}
		_, err := train(t, job, "cuda", t.TempDir(), 0)
		t.Logf("error: %v", err)
		if h, ok := err.(interface{ Hint() string }); ok {
			t.Logf("hint: %s", h.Hint())
		}
		return
	}
	for _, c := range []struct{ set, want string }{
		{"GPUSIM_TEST=large", "the copies that checkpoint.async saves need 6.97 TiB of this machine's memory, and "},
		{"GPUSIM_FAIL=alloc:2", "CUDA_ERROR_OUT_OF_MEMORY"},
		{"GPUSIM_MEMORY=16000000", "of memory, libraries about 40 MiB more, and 13.3 MiB are free on cuda 0, Simulated GPU"},
		{"GPUSIM_FAIL=launch:sgd", "CUDA_ERROR_LAUNCH_FAILED"},
		{"GPUSIM_FAIL=launch:graph", "after a graph of "},
		{"GPUSIM_FAIL=lost:90", "CUDA_ERROR_ECC_UNCORRECTABLE"},
	} {
		out, err := gpusim.Again(t, t.Name(), "GPUSIM_TEST=1", "GPUSIM_MEMORY=0x400000000000", c.set)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", c.set, err, out)
		}
	}
}
