package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

const mlp = `name = "t"
[train]
device = "cpu"
epochs = 3
batch = %d
seed = 1
log_every = "1 step"
[train.model]
kind = "mlp"
hidden = [16]
[train.data]
kind = "synthetic"
task = "classification"
samples = 203
inputs = 5
outputs = 4
[train.optimizer]
kind = "sgd"
lr = 0.1
momentum = 0.9
[checkpoint]
every = "7 steps"
keep = 100
`

func job(t *testing.T, text string) *jobs.Job {
	t.Helper()
	j, err := jobs.Parse("job.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// world trains with n ranks in this process, connected over TCP like the ranks of a job. It returns
// the events on rank 0. change may alter each rank's options.
func world(t *testing.T, n int, j *jobs.Job, dir string, change func(rank int, o *Options)) ([]Event, Result, []error) {
	t.Helper()
	comms := ring(t, n)
	errs := make([]error, n)
	var events []Event
	var result Result
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var wg sync.WaitGroup
	for rank := range n {
		o := Options{Job: j, Run: "run", Checkpoints: dir, Comm: comms[rank], Observe: func(Event) {}}
		if rank == 0 {
			o.Observe = func(e Event) { events = append(events, e) }
		}
		if change != nil {
			change(rank, &o)
		}
		wg.Go(func() {
			r, err := Run(ctx, o)
			if errs[rank] = err; err != nil {
				cancel(err) // as the launcher would
			}
			if rank == 0 {
				result = r
			}
		})
	}
	wg.Wait()
	return events, result, errs
}

func ring(t *testing.T, n int) []collective.Communicator {
	t.Helper()
	comms := collective.Local(n, 5*time.Minute)
	t.Cleanup(func() {
		for _, c := range comms {
			c.Close()
		}
	})
	return comms
}

// digests returns the digests of the tensors of the newest checkpoint. Equal digests mean equal
// bits.
func digests(t *testing.T, dir string) (step int, sums string) {
	t.Helper()
	s, skipped, err := checkpoint.Load(t.Context(), dir)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	var b strings.Builder
	defer s.Close()
	for _, name := range []string{checkpoint.ModelFile, checkpoint.OptimizerFile} {
		f := s.Files[name]
		tensors, _, err := safetensors.Read(f, f.Size())
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range tensors {
			fmt.Fprint(&b, tensor.Name, tensor.Shape)
			for _, v := range tensor.Data {
				fmt.Fprintf(&b, " %08x", math.Float32bits(v))
			}
		}
	}
	return s.Manifest.Step, b.String()
}

func ok(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// losses returns the training losses by step.
func losses(events []Event) map[int]float64 {
	out := map[int]float64{}
	for _, e := range events {
		if e.Kind == Trained {
			out[e.Step] = e.Loss
		}
	}
	return out
}

// TestRanksEqualOneRank checks that ranks that share a batch train the same as one rank with the
// whole batch.
func TestRanksEqualOneRank(t *testing.T) {
	events, _, errs := world(t, 1, job(t, fmt.Sprintf(mlp, 12)), t.TempDir(), nil)
	ok(t, errs)
	want := losses(events)
	for _, n := range []int{2, 3, 4} {
		// With 203 samples, the padding depends on the number of ranks only at the end of an epoch.
		events, _, errs := world(t, n, job(t, fmt.Sprintf(mlp, 12/n)), t.TempDir(), nil)
		ok(t, errs)
		got := losses(events)
		for step := 1; step <= 16; step++ {
			if rel := math.Abs(got[step]-want[step]) / want[step]; !(rel < 1e-5) {
				t.Errorf("%d ranks, step %d: loss %v, one rank has %v", n, step, got[step], want[step])
			}
		}
	}
}

// optimizers are replacements for the SGD settings of mlp.
var optimizers = map[string]string{
	"sgd": "",
	"adamw, clipped, warm-up and cosine": `kind = "adamw"
lr = 0.01
clip_norm = 0.5
[train.schedule]
kind = "cosine"
warmup = 5
steps = 25
floor = 0.0005
`,
	"lion": `kind = "lion"
lr = 0.001
weight_decay = 0.1
`,
	"muon, clipped": `kind = "muon"
lr = 0.01
clip_norm = 0.5
decay = "matrices"
`,
	"adam, step": `kind = "adam"
lr = 0.01
[train.schedule]
kind = "step"
gamma = 0.5
every = 10
`,
}

// TestStopAndResumeGiveTheSameBits checks for every kind of optimizer state that a run that is
// stopped at any step and resumed ends with bit-identical weights.
func TestStopAndResumeGiveTheSameBits(t *testing.T) {
	for name, text := range optimizers {
		t.Run(name, func(t *testing.T) {
			spec := fmt.Sprintf(mlp, 6)
			if text != "" {
				spec = strings.Replace(spec, "kind = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n", text, 1)
			}
			stopAndResume(t, job(t, spec))
		})
	}
}

func stopAndResume(t *testing.T, j *jobs.Job) {
	t.Helper()
	whole := t.TempDir()
	_, result, errs := world(t, 3, j, whole, nil)
	ok(t, errs)
	wantStep, want := digests(t, whole)
	if result.Step != wantStep || wantStep != 3*12 {
		t.Fatalf("%d steps, the checkpoint says %d", result.Step, wantStep)
	}
	for stopAt := 1; stopAt < wantStep; stopAt += 3 {
		dir := t.TempDir()
		// A different rank is asked each time; all must stop after the same step.
		asked := stopAt % 3
		_, result, errs := world(t, 3, j, dir, func(rank int, o *Options) {
			stop := make(chan struct{})
			o.Stop = stop
			if rank != asked {
				return
			}
			inner := o.Observe
			o.Observe = func(e Event) {
				inner(e)
				if e.Kind == Trained && e.Step == stopAt {
					close(stop)
				}
			}
		})
		ok(t, errs)
		if !result.Stopped || result.Step != stopAt+1 {
			t.Fatalf("asked at step %d, stopped %v at %d", stopAt, result.Stopped, result.Step)
		}
		if step, _ := digests(t, dir); step != result.Step {
			t.Fatalf("stopped at step %d, saved %d", result.Step, step)
		}
		if _, _, errs = world(t, 3, j, dir, nil); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		if step, got := digests(t, dir); step != wantStep || got != want {
			t.Fatalf("stopped at %d and resumed: other weights at step %d", stopAt, step)
		}
	}
}

// TestDeathAndResumeGiveTheSameBits checks that a rank that dies at any step leaves a checkpoint
// from which the run ends with bit-identical weights.
func TestDeathAndResumeGiveTheSameBits(t *testing.T) {
	deathAndResume(t, job(t, fmt.Sprintf(mlp, 10)))
}

func deathAndResume(t *testing.T, j *jobs.Job) {
	t.Helper()
	whole := t.TempDir()
	_, _, errs := world(t, 2, j, whole, nil)
	ok(t, errs)
	wantStep, want := digests(t, whole)
	for dieAt := 1; dieAt < wantStep; dieAt += 5 {
		dir := t.TempDir()
		_, _, errs := world(t, 2, j, dir, func(rank int, o *Options) {
			o.Observe = func(e Event) {
				if rank == 1 && e.Kind == Trained && e.Step == dieAt {
					o.Comm.Close()
				}
			}
		})
		if errors.Join(errs...) == nil {
			t.Fatalf("nobody noticed the death at step %d", dieAt)
		}
		_, _, errs = world(t, 2, j, dir, nil)
		ok(t, errs)
		if step, got := digests(t, dir); step != wantStep || got != want {
			t.Fatalf("died at %d and resumed: other weights at step %d", dieAt, step)
		}
	}
}

// TestFinishedRunIsUnchanged checks that a finished run does not train again, also with fewer
// epochs, and that it continues with more epochs.
func TestFinishedRunIsUnchanged(t *testing.T) {
	j, dir := job(t, fmt.Sprintf(mlp, 50)), t.TempDir()
	_, _, errs := world(t, 2, j, dir, nil)
	ok(t, errs)
	step, before := digests(t, dir)
	events, result, errs := world(t, 2, j, dir, nil)
	ok(t, errs)
	if !result.AlreadyDone || result.Step != step || len(events) != 2 || events[1].Kind != Finished {
		t.Errorf("result %+v, events %v", result, events)
	}
	if _, after := digests(t, dir); after != before {
		t.Error("the weights changed")
	}
	// With fewer epochs than before, it reports the epochs that were trained.
	fewer := job(t, strings.Replace(fmt.Sprintf(mlp, 50), "epochs = 3", "epochs = 2", 1))
	events, result, errs = world(t, 2, fewer, dir, nil)
	ok(t, errs)
	if !result.AlreadyDone || len(events) != 2 || !strings.Contains(events[1].String(), "3 epochs") {
		t.Errorf("fewer epochs: %+v, events %v", result, events)
	}
	// With more epochs than before, the run continues.
	more := job(t, strings.Replace(fmt.Sprintf(mlp, 50), "epochs = 3", "epochs = 4", 1))
	_, result, errs = world(t, 2, more, dir, nil)
	ok(t, errs)
	if result.AlreadyDone || result.Step <= step {
		t.Errorf("one more epoch: %+v", result)
	}
}

// TestResumeWithOtherWorldSize checks that a different number of ranks resumes a run and still
// uses every sample of the epoch.
func TestResumeWithOtherWorldSize(t *testing.T) {
	j, dir := job(t, fmt.Sprintf(mlp, 6)), t.TempDir()
	_, _, errs := world(t, 3, j, dir, func(rank int, o *Options) {
		stop := make(chan struct{})
		close(stop)
		o.Stop = stop
	})
	ok(t, errs)
	events, result, errs := world(t, 2, j, dir, nil)
	ok(t, errs)
	for _, e := range events {
		if e.Kind == Trained && e.Steps != 51 {
			t.Errorf("at step %d: %d steps in all, want 51", e.Step, e.Steps)
		}
	}
	// One step of 18 samples, then 185 left in the first epoch.
	if want := 1 + 16 + 2*17; result.Step != want {
		t.Errorf("%d steps, want %d", result.Step, want)
	}
}

// TestFirstSaveIsBeforeTheFirstStep checks that a run that cannot save fails before its first
// step.
func TestFirstSaveIsBeforeTheFirstStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	events, _, errs := world(t, 2, job(t, fmt.Sprintf(mlp, 6)), filepath.Join(file, "checkpoints"), nil)
	if errs[0] == nil {
		t.Fatal("a run that cannot save was started")
	}
	for _, e := range events {
		if e.Kind == Trained {
			t.Error("a step was made")
		}
	}
}

// TestDivergenceStopsRun checks that a loss that is not finite stops the run, and that no
// checkpoint is saved after it.
func TestDivergenceStopsRun(t *testing.T) {
	dir := t.TempDir()
	text := strings.Replace(fmt.Sprintf(mlp, 10), "lr = 0.1", "lr = 1e30", 1)
	_, _, errs := world(t, 2, job(t, text), dir, nil)
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "the loss became") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	s, _, err := checkpoint.Load(t.Context(), dir)
	if err != nil || s.Manifest.Step != 0 {
		t.Errorf("newest checkpoint %v, %v", s, err)
	}
}
