package trainer

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// evaluateOn evaluates 7 samples on a number of ranks, and returns the metrics of each rank.
func evaluateOn(t *testing.T, ranks int, stop func(rank int) bool) []evaluation {
	t.Helper()
	comms := collective.Local(ranks, time.Minute)
	out := make([]evaluation, ranks)
	var wg sync.WaitGroup
	for rank, c := range comms {
		wg.Go(func() {
			held, _, err := data.Open(t.Context(), data.Options{Kind: data.KindSynthetic, Task: data.TaskClassification, Samples: 7, Inputs: 5, Outputs: 3, Seed: 1})
			if err != nil {
				t.Error(err)
				return
			}
			m, err := nn.NewLinear(5, 3)
			if err != nil {
				t.Error(err)
				return
			}
			d := cpu.New(1)
			sharder := ddp.New(ddp.NewCommunicator(c), d, m.Params(), ddp.Options{})
			m.Init(random.New(1), d)
			m.Plan(nn.Plan{Device: d, Batch: 2})
			e := evaluator{comm: c, data: held, loader: data.NewLoader(held, 2, 1), device: d, model: m, sharder: sharder, input: new(deviceBatch),
				batch: 2, stopRequested: func() bool { return stop(rank) }, progress: new(Progress)}
			if out[rank], err = e.run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return out
}

// TestEvaluatorUsesEachSampleOnce checks that the metrics depend neither on the number of ranks, also
// if some of them have fewer samples or none, nor on the rank.
func TestEvaluatorUsesEachSampleOnce(t *testing.T) {
	never := func(int) bool { return false }
	want := evaluateOn(t, 1, never)[0]
	for _, ranks := range []int{2, 3, 8} {
		for rank, got := range evaluateOn(t, ranks, never) {
			if got.stopped || got.accuracy != want.accuracy || math.Abs(got.loss-want.loss) > 1e-12 || !(got.loss > 0) {
				t.Errorf("rank %d of %d: %+v, want %+v", rank, ranks, got, want)
			}
		}
	}
	for rank, got := range evaluateOn(t, 3, func(rank int) bool { return rank == 1 }) {
		if !got.stopped {
			t.Errorf("rank %d does not stop: %+v", rank, got)
		}
	}
}

// evaluated returns the held-out losses by number of completed epochs.
func evaluated(events []Event) map[int]float64 {
	out := map[int]float64{}
	for _, e := range events {
		if e.Kind == Evaluated {
			out[e.Epoch] = e.Loss
		}
	}
	return out
}

// TestStopWhileEvaluating checks that a stop does not wait for the evaluation of an epoch: the run
// saves the epoch and evaluates it when it resumes, also after the last epoch.
func TestStopWhileEvaluating(t *testing.T) {
	j := job(t, fmt.Sprintf(gpt, 2, 0.0, text(t)))
	whole := t.TempDir()
	events, _, errs := world(t, 2, j, whole, nil)
	ok(t, errs)
	want, perEpoch := evaluated(events), events[len(events)-1].Step/2
	if len(want) != 2 {
		t.Fatalf("evaluations %v", want)
	}
	for epoch := 1; epoch <= 2; epoch++ {
		dir := t.TempDir()
		events, result, errs := world(t, 2, j, dir, func(rank int, o *Options) {
			stop := make(chan struct{})
			o.Stop = stop
			observe, once := o.Observe, sync.Once{}
			o.Observe = func(e Event) {
				observe(e)
				if rank == 1 && e.Kind == Trained && e.Step == epoch*perEpoch {
					once.Do(func() { close(stop) })
				}
			}
		})
		ok(t, errs)
		if _, done := evaluated(events)[epoch]; done || !result.Stopped || result.Step != epoch*perEpoch {
			t.Fatalf("epoch %d: %+v, evaluations %v", epoch, result, evaluated(events))
		}
		s, _, err := checkpoint.Load(t.Context(), dir)
		if err != nil || s.Manifest.Step != epoch*perEpoch || !s.Manifest.Unevaluated || s.Manifest.Finished {
			t.Fatalf("epoch %d: checkpoint of step %d, unevaluated %t, %v", epoch, s.Manifest.Step, s.Manifest.Unevaluated, err)
		}
		events, result, errs = world(t, 2, j, dir, nil)
		ok(t, errs)
		for e := epoch; e <= 2; e++ {
			if got := evaluated(events)[e]; math.Float64bits(got) != math.Float64bits(want[e]) {
				t.Errorf("stopped after epoch %d: held-out loss of epoch %d is %v, want %v", epoch, e, got, want[e])
			}
		}
		if _, got := digests(t, dir); result.Stopped || !endedWith(t, whole, got) {
			t.Errorf("stopped after epoch %d: the weights at the end are others", epoch)
		}
	}
}

// endedWith reports whether the run in dir ended with these weights.
func endedWith(t *testing.T, dir, sums string) bool {
	t.Helper()
	_, want := digests(t, dir)
	return sums == want
}

// TestDifferentHeldOutDataAreRejected checks that a run is rejected if held-out rows differ
// between ranks. The evaluation would be meaningless.
func TestDifferentHeldOutDataAreRejected(t *testing.T) {
	dir := t.TempDir()
	for name, rows := range map[string]string{"train.csv": "1,1\n2,2\n3,3\n4,4\n", "eval0.csv": "5,5\n", "eval1.csv": "5,6\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(rows), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec := func(rank int) string {
		s := fmt.Sprintf(csv, "stop", filepath.Join(dir, "train.csv"))
		return strings.Replace(s, "shuffle = false", fmt.Sprintf("eval_path = %q", filepath.Join(dir, fmt.Sprintf("eval%d.csv", rank))), 1)
	}
	_, _, errs := world(t, 2, job(t, spec(0)), t.TempDir(), func(rank int, o *Options) { o.Job = job(t, spec(rank)) })
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "the held-out data of this rank differ from rank 0's") {
		t.Errorf("rank 1: %v", errs[1])
	}
}
