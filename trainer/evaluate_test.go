package trainer

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

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

// A stop during the evaluation of an epoch does not wait for the evaluation: the epoch is saved,
// and evaluated when the run resumes, also after the last epoch.
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

// If held-out rows differ between ranks, the accuracy would be meaningless.
func TestOtherHeldOutDataOnOneRankAreRefused(t *testing.T) {
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
