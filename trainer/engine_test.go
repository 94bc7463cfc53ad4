package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/checkpointing"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// gpt is a job that trains on a text file.
const gpt = `name = "t"
[train]
epochs = 2
batch = %d
seed = 1
log_every = "1 step"
[train.model]
kind = "gpt"
layers = 2
heads = 2
width = 16
context = 8
dropout = %v
[train.data]
kind = "text"
path = %q
holdout = 0.2
[train.optimizer]
kind = "adamw"
lr = 0.003
clip_norm = 1.0
[checkpoint]
every = "3 steps"
keep = 100
`

// text creates a file with 25 windows of 8 characters to train on.
func text(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 12)[:252]), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sameLosses compares the losses of two runs.
func sameLosses(t *testing.T, got, want []Event, tolerance float64) {
	t.Helper()
	a, b := losses(got), losses(want)
	if len(a) == 0 || len(a) != len(b) {
		t.Fatalf("%d and %d steps", len(a), len(b))
	}
	for step, loss := range b {
		if math.Abs(a[step]-loss) > tolerance*loss {
			t.Errorf("step %d: loss %v, want %v", step, a[step], loss)
		}
	}
}

// TestAccumulationEqualsALargeBatch checks that gradient accumulation trains the same as one large
// batch, also in the last, shorter step, with and without dropout.
func TestAccumulationEqualsALargeBatch(t *testing.T) {
	path := text(t)
	for _, dropout := range []float64{0, 0.2} {
		large, _, errs := world(t, 1, job(t, fmt.Sprintf(gpt, 6, dropout, path)), t.TempDir(), nil)
		ok(t, errs)
		for _, ranks := range []int{1, 2, 3} {
			small := strings.Replace(fmt.Sprintf(gpt, 2, dropout, path), "batch = 2", fmt.Sprintf("batch = %d\naccumulate = %d", max(1, 3/ranks), 6/ranks/max(1, 3/ranks)), 1)
			events, _, errs := world(t, ranks, job(t, small), t.TempDir(), nil)
			ok(t, errs)
			if ranks == 1 {
				sameLosses(t, events, large, 2e-6)
				continue
			}
			// The last step of an epoch repeats samples so that every rank has one.
			for step := 1; step <= 4; step++ {
				if a, b := losses(events)[step], losses(large)[step]; math.Abs(a-b) > 2e-6*b {
					t.Errorf("dropout %v, %d ranks, step %d: loss %v, want %v", dropout, ranks, step, a, b)
				}
			}
		}
	}
}

// TestGPTLearnsAndResumesWithTheSameBits checks that a GPT learns, and that a run that stops after
// each step ends with the weights of an undisturbed run.
func TestGPTLearnsAndResumesWithTheSameBits(t *testing.T) {
	path := text(t)
	j := job(t, strings.Replace(fmt.Sprintf(gpt, 2, 0.1, path), "epochs = 2", "epochs = 6", 1))
	whole := t.TempDir()
	events, _, errs := world(t, 2, j, whole, nil)
	ok(t, errs)
	first, last := math.Inf(1), 0.0
	for _, e := range events {
		if e.Kind == Evaluated {
			first, last = min(first, e.Loss), e.Loss
		}
		if e.Kind == Trained && !(e.TokensPerSecond > e.SamplesPerSecond) {
			t.Errorf("%v tokens/s, %v samples/s", e.TokensPerSecond, e.SamplesPerSecond)
		}
	}
	if at := losses(events)[1]; !(last < at-0.3) {
		t.Errorf("held-out loss %v at the end, %v at the start: nothing was learnt", last, at)
	}
	parts := t.TempDir()
	for range 100 {
		_, result, errs := world(t, 2, j, parts, func(_ int, o *Options) {
			stop, once := make(chan struct{}), sync.Once{}
			o.Stop = stop
			observe := o.Observe
			o.Observe = func(e Event) {
				observe(e)
				if e.Kind == Trained { // the step after it is the last
					once.Do(func() { close(stop) })
				}
			}
		})
		ok(t, errs)
		if !result.Stopped {
			break
		}
	}
	wantStep, want := digests(t, whole)
	if step, got := digests(t, parts); step != wantStep || got != want {
		t.Errorf("stopped after every step, the weights after step %d are not those of step %d without a stop", step, wantStep)
	}
}

// TestEveryKindOfModelTrains checks that each model that other tests do not train reaches a useful
// accuracy, in fp32 and bf16.
func TestEveryKindOfModelTrains(t *testing.T) {
	for name, model := range map[string]string{
		"mlp with gelu and dropout": "kind = \"mlp\"\nhidden = [16]\nactivation = \"gelu\"\ndropout = 0.1",
		"cnn":                       "kind = \"cnn\"\nchannels = [4, 8]\nhidden = [16]",
	} {
		for _, precision := range []string{"fp32", "bf16"} {
			t.Run(name+" in "+precision, func(t *testing.T) {
				j := job(t, fmt.Sprintf("name = \"t\"\n[train]\nepochs = 1\nbatch = 32\nprecision = %q\n[train.model]\n%s\n[train.data]\nkind = \"idx\"\npath = \"builtin:fashion-mnist\"\n[train.optimizer]\nkind = \"adamw\"\nlr = 0.003\n", precision, model))
				events, _, errs := world(t, 2, j, t.TempDir(), nil)
				ok(t, errs)
				accuracy := 0.0
				for _, e := range events {
					if e.Kind == Evaluated {
						accuracy = e.Accuracy
					}
				}
				if accuracy < 0.6 {
					t.Errorf("accuracy %v after an epoch", accuracy)
				}
			})
		}
	}
}

// csv is a job whose data have a sample with an infinite loss.
const csv = `name = "t"
[train]
epochs = 1
batch = 1
nonfinite = %q
log_every = "1 step"
[train.model]
kind = "linear"
[train.data]
kind = "csv"
task = "regression"
path = %q
shuffle = false
[train.optimizer]
kind = "sgd"
lr = 0.01
`

// TestStepsThatAreNotFinite checks that a non-finite step stops the run or is skipped, as
// configured, and that too many consecutive ones stop the run.
func TestStepsThatAreNotFinite(t *testing.T) {
	train := func(policy string, bad int) ([]Event, Result, []error) {
		path := filepath.Join(t.TempDir(), "data.csv")
		rows := "1,1\n2,2\n" + strings.Repeat("3e38,-3e38\n", bad) + "1,1\n"
		if err := os.WriteFile(path, []byte(rows), 0o600); err != nil {
			t.Fatal(err)
		}
		return world(t, 1, job(t, fmt.Sprintf(csv, policy, path)), t.TempDir(), nil)
	}
	if _, _, errs := train("stop", 1); errs[0] == nil || !strings.Contains(errs[0].Error(), "became +Inf at step 2 of epoch 0") {
		t.Errorf("stop: %v", errs[0])
	}
	events, result, errs := train("skip", maxSkipped)
	ok(t, errs)
	skipped := 0
	for _, e := range events {
		if e.Kind == Skipped {
			skipped++
		}
	}
	if skipped != maxSkipped || result.Step != 3+maxSkipped || !(losses(events)[3+maxSkipped] < 10) {
		t.Errorf("%d steps left out of %d, last loss %v", skipped, result.Step, losses(events)[3+maxSkipped])
	}
	if _, _, errs := train("skip", maxSkipped+1); errs[0] == nil || !strings.Contains(errs[0].Error(), "at step 12") {
		t.Errorf("skip, too many: %v", errs[0])
	}
}

// TestStepsAllocateNothing checks that a step does not allocate memory, from reading the samples
// to the update, with and without a trace.
func TestStepsAllocateNothing(t *testing.T) {
	for name, spec := range map[string]string{
		"mlp": fmt.Sprintf(mlp, 2),
		"gpt": strings.Replace(fmt.Sprintf(gpt, 1, 0.1, text(t)), "seed = 1", "seed = 1\naccumulate = 2\nprecision = \"bf16\"", 1),
	} {
		t.Run(name, func(t *testing.T) {
			j := job(t, spec)
			r := newRun(Options{Job: j, Comm: collective.SingleRank{}, Trace: trace.New(1, 6), Observe: func(Event) {}})
			if err := r.build(t.Context()); err != nil {
				t.Fatal(err)
			}
			l := &r.loop
			if err := l.saver.State.Scatter(t.Context(), checkpointing.Origin{}, false, r.newWeights); err != nil {
				t.Fatal(err)
			}
			steps, i := l.order.steps(l.pos), 0
			l.loader.Start(batchesOf(steps))
			defer l.loader.Stop()
			step := func() {
				if err := l.step(t.Context(), &steps[i]); err != nil {
					t.Fatal(err)
				}
				i++
			}
			if n := testing.AllocsPerRun(4, step); n != 0 {
				t.Errorf("%v allocations in a step", n)
			}
			if err := l.updateTrace(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(4, step); n != 0 || !r.Trace.Recording() {
				t.Errorf("%v allocations in a step that is recorded: %v", n, r.Trace.Recording())
			}
		})
	}
}

// TestEpochWithoutBatchIsRejected checks that a run is rejected if its samples do not fill one
// batch.
func TestEpochWithoutBatchIsRejected(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(mlp, 300), "outputs = 4", "outputs = 4\ndrop_last = true", 1)
	_, _, errs := world(t, 1, job(t, text), t.TempDir(), nil)
	if errs[0] == nil || errs[0].Error() != "203 samples on 1 ranks do not fill one batch of 300" {
		t.Errorf("got %v", errs[0])
	}
}

// TestGPTStartsFromWeights checks that a GPT starts from the weights of a checkpoint's model file,
// and that the error for a file that does not match names the file and the tensor.
func TestGPTStartsFromWeights(t *testing.T) {
	path := text(t)
	trained := t.TempDir()
	_, _, errs := world(t, 1, job(t, fmt.Sprintf(gpt, 4, 0, path)), trained, nil)
	ok(t, errs)
	s, _, err := checkpoint.Load(t.Context(), trained)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.Manifest.Vocabulary, "char:") {
		t.Errorf("vocabulary %q", s.Manifest.Vocabulary)
	}
	from := func(context string) (map[int]float64, error) {
		spec := strings.Replace(fmt.Sprintf(gpt, 4, 0, path), "context = 8", context+fmt.Sprintf("\nweights = %q", filepath.Join(s.Path, checkpoint.ModelFile)), 1)
		events, _, errs := world(t, 1, job(t, spec), t.TempDir(), nil)
		return losses(events), errs[0]
	}
	further, err := from("context = 8")
	if err != nil || !(further[1] < float64(s.Manifest.Metrics["loss"])+0.3) {
		t.Errorf("first loss %v after %v: %v", further[1], s.Manifest.Metrics["loss"], err)
	}
	if _, err := from("context = 9"); err == nil || !strings.Contains(err.Error(), checkpoint.ModelFile) || !strings.Contains(err.Error(), "wpe.weight") {
		t.Errorf("other context: %v", err)
	}
}

// early is a communicator that fails at the first barrier.
type early struct{ collective.Communicator }

func (c early) Do(ctx context.Context, call collective.Call) error {
	if call.Kind == collective.KindBarrier {
		return errors.New("before the others")
	}
	return c.Communicator.Do(ctx, call)
}

// TestNoAllocationBeforeAllRanksMeasure checks that no rank allocates its weights before all ranks
// have measured the free memory. Each rank accounts for the share of the others.
func TestNoAllocationBeforeAllRanksMeasure(t *testing.T) {
	const width, layers = 1024, 2
	large := strings.Replace(fmt.Sprintf(gpt, 2, 0, text(t)), "width = 16", fmt.Sprint("width = ", width), 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, errs := world(t, 2, job(t, large), t.TempDir(), func(_ int, o *Options) { o.Comm = early{o.Comm} })
	runtime.ReadMemStats(&after)
	if errs[0] == nil || errs[1] == nil {
		t.Fatal(errs)
	}
	if taken, weights := after.TotalAlloc-before.TotalAlloc, uint64(4*12*width*width*layers); taken > weights/2 {
		t.Errorf("%d bytes were taken: weights are %d", taken, weights)
	}
}

// TestTooLargeModelIsRejected checks that a run that exceeds the free memory is rejected with
// sizes before it allocates memory.
func TestTooLargeModelIsRejected(t *testing.T) {
	large := strings.Replace(fmt.Sprintf(gpt, 2, 0, text(t)), "width = 16", "width = 8192", 1)
	_, _, errs := world(t, 1, job(t, large), t.TempDir(), func(_ int, o *Options) { o.LocalRanks = 1000 })
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "on each of 1000 ranks of this machine") || !strings.Contains(errs[0].Error(), "GiB are free") {
		t.Errorf("got %v", errs[0])
	}
	// Small sizes have small units.
	_, _, errs = world(t, 1, job(t, fmt.Sprintf(gpt, 2, 0.0, text(t))), t.TempDir(), func(_ int, o *Options) { o.LocalRanks = 1e8 })
	if want := regexp.MustCompile(`need [0-9.]+ [KM]iB of memory on each of 100000000 ranks of this machine, [0-9.]+ TiB in all`); errs[0] == nil || !want.MatchString(errs[0].Error()) {
		t.Errorf("got %v, want %v", errs[0], want)
	}
	// The copies of an async checkpoint count.
	_, _, errs = world(t, 1, job(t, strings.Replace(large, "[checkpoint]", "[checkpoint]\nasync = true", 1)), t.TempDir(), nil)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), " for the copy that checkpoint.async saves, and ") {
		t.Errorf("got %v", errs[0])
	}
	// A batch larger than the data set needs no more memory than the data set.
	_, result, errs := world(t, 1, job(t, fmt.Sprintf(mlp, 2147483647)), t.TempDir(), nil)
	ok(t, errs)
	if result.Step != 3 {
		t.Errorf("%d steps", result.Step)
	}
}

// TestIdleStepsAreReported checks the warning if the schedule sets a learning rate of 0 for the
// last steps.
func TestIdleStepsAreReported(t *testing.T) {
	for spec, want := range map[string]string{
		"steps = 25":                "warning: the learning rate is 0 in the last 26 of 51 steps",
		"steps = 50":                "", // the last step is at the end of the cosine
		"steps = 25\nfloor = 0.001": "",
	} {
		text := fmt.Sprintf(mlp, 12) + "[train.schedule]\nkind = \"cosine\"\n" + spec + "\n"
		events, _, errs := world(t, 1, job(t, text), t.TempDir(), nil)
		ok(t, errs)
		got := ""
		for _, e := range events {
			if e.Kind == Idle {
				got = e.String()
			}
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

// TestIdleStepsAfterStop checks the number of steps in the warning if the run was stopped in the last
// step of an epoch.
func TestIdleStepsAfterStop(t *testing.T) {
	j, dir := job(t, fmt.Sprintf(mlp, 12)+"[train.schedule]\nkind = \"cosine\"\nsteps = 25\n"), t.TempDir()
	stoppedRun(t, 1, j, dir, 17)
	events, _, errs := world(t, 1, j, dir, nil)
	ok(t, errs)
	i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == Idle })
	if i < 0 || events[i].Steps != 51 || events[i].Idle != 26 {
		t.Errorf("got %+v, want 26 of 51 steps", events)
	}
}
