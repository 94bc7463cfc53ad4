package trainer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// TestKeepBest checks that a run keeps the best checkpoint by the measured metric. It saves it
// even if no save is due, and finds it again after a stop.
func TestKeepBest(t *testing.T) {
	// The learning rate is far too high, so the loss goes up and down.
	text := strings.NewReplacer("lr = 0.003", "lr = 0.3", "epochs = 2", "epochs = 8").Replace(fmt.Sprintf(gpt, 2, 0.0, text(t)))
	for _, every := range []string{"1 epoch", "100000 steps"} {
		for _, stopAfter := range []int{0, 4} {
			j := job(t, strings.NewReplacer("3 steps", every, "keep = 100", "keep = 1\nkeep_best = \"eval_loss\"").Replace(text))
			dir := t.TempDir()
			losses := map[int]float64{} // by step
			note := func(events []Event) {
				for _, e := range events {
					if e.Kind == Evaluated {
						losses[e.Step] = e.Loss
					}
				}
			}
			if stopAfter > 0 {
				events, _, errs := world(t, 2, j, dir, func(rank int, o *Options) {
					stop := make(chan struct{})
					o.Stop = stop
					observe, closed := o.Observe, false
					o.Observe = func(e Event) {
						observe(e)
						if e.Kind == Evaluated && e.Epoch == stopAfter && !closed {
							closed = true
							close(stop)
						}
					}
				})
				ok(t, errs)
				note(events)
			}
			events, _, errs := world(t, 2, j, dir, nil)
			ok(t, errs)
			note(events)
			best := -1
			for step, l := range losses {
				if best < 0 || l < losses[best] {
					best = step
				}
			}
			entries, err := checkpoint.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			last := slices.MaxFunc(entries, func(a, b checkpoint.Entry) int { return a.Step - b.Step })
			if best == last.Step {
				t.Fatalf("the last evaluation is the best, which shows nothing: %v", losses)
			}
			at := slices.IndexFunc(entries, func(e checkpoint.Entry) bool { return e.Step == best })
			if at < 0 || len(entries) != 2 || float64(entries[at].Manifest.Metrics["eval_loss"]) != losses[best] {
				t.Errorf("every %s: checkpoints %v, want that of step %d; losses %v", every, entries, best, losses)
			}
		}
	}
}

// TestKeepBestIgnoresSkippedCheckpoint checks that the best checkpoint is saved again if it is corrupt
// when the run resumes from an earlier one.
func TestKeepBestIgnoresSkippedCheckpoint(t *testing.T) {
	text := strings.NewReplacer("3 steps", "100000 steps", "keep = 100", "keep = 2\nkeep_best = \"eval_loss\"").Replace(fmt.Sprintf(gpt, 2, 0.0, text(t)))
	dir := t.TempDir()
	events, result, errs := world(t, 1, job(t, text), dir, nil)
	ok(t, errs)
	events = slices.DeleteFunc(events, func(e Event) bool { return e.Kind != Evaluated })
	if len(events) != 2 || events[1].Loss >= events[0].Loss {
		t.Fatalf("the last evaluation is not the best, which shows nothing: %v", events)
	}
	corrupt(t, dir, result.Step)
	events, _, errs = world(t, 1, job(t, strings.Replace(text, "epochs = 2", "epochs = 3", 1)), dir, nil)
	ok(t, errs)
	if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Saved && e.Step == result.Step }) {
		t.Errorf("step %d was not saved again: %v", result.Step, events)
	}
}

// TestKeepBestWithoutMetric checks that a run rejects a metric that it does not measure, before
// training starts.
func TestKeepBestWithoutMetric(t *testing.T) {
	for metric, text := range map[string]string{"eval_loss": csv, "accuracy": csv} {
		path := filepath.Join(t.TempDir(), "data.csv")
		if err := os.WriteFile(path, []byte("1,1\n2,2\n3,3\n4,4\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if metric == "accuracy" { // not available for regression
			text = strings.Replace(text, "shuffle", "eval_path = \"EVAL\"\nshuffle", 1)
		}
		j := job(t, strings.Replace(fmt.Sprintf(text, "stop", path), "EVAL", path, 1)+"[checkpoint]\nkeep_best = \""+metric+"\"\n")
		_, _, errs := world(t, 1, j, t.TempDir(), nil)
		if want := fmt.Sprintf("checkpoint.keep_best is %q, but", metric); errs[0] == nil || !strings.Contains(errs[0].Error(), want) || hints.Of(errs[0]) == "" {
			t.Errorf("%s: %v", metric, errs[0])
		}
	}
}
