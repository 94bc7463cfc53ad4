package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// contents returns the digests of the files of all checkpoints in a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	entries, err := checkpoint.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		if err := checkpoint.Verify(t.Context(), e.Path); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(&b, "step %d, epoch %d, %d samples, metrics %v", e.Step, e.Manifest.Epoch, e.Manifest.Consumed, e.Manifest.Metrics)
		for _, f := range e.Manifest.Files {
			fmt.Fprintf(&b, ", %s %s", f.Name, f.SHA256)
		}
		fmt.Fprintln(&b)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != len(entries) {
		t.Errorf("%d checkpoints among %v, %v", len(entries), left, err)
	}
	return b.String()
}

// TestAsyncSaveWritesSameBytes checks for every strategy that an async save writes the same bytes
// as a synchronous one, so training continues unchanged.
func TestAsyncSaveWritesSameBytes(t *testing.T) {
	for _, strategy := range strategyNames {
		for _, ranks := range []int{2, 3} {
			spec := strings.Replace(models(t)["gpt"](1), "[checkpoint]", "[checkpoint]\nkeep_every = \"2 steps\"", 1)
			var got [2]string
			for i, setting := range []string{"async = false", "async = true"} {
				dir := t.TempDir()
				j := withStrategy(t, strategy, strings.Replace(spec, "[checkpoint]", "[checkpoint]\n"+setting, 1))
				_, result, errs := world(t, ranks, j, dir, smallBuckets)
				ok(t, errs)
				got[i] = contents(t, dir)
				if !strings.Contains(got[i], fmt.Sprintf("step %d,", result.Step)) || strings.Count(got[i], "step ") < 3 {
					t.Fatalf("%s on %d: %s", strategy, ranks, got[i])
				}
			}
			if got[0] != got[1] {
				t.Errorf("%s on %d:\n%swaited for:\n%s", strategy, ranks, got[1], got[0])
			}
		}
	}
}

// TestStopAndDeathDuringAsyncSave checks that the final weights are bit-identical if training
// stops or a rank dies at any step, also during an async save.
func TestStopAndDeathDuringAsyncSave(t *testing.T) {
	for _, strategy := range []jobs.Strategy{jobs.StrategyDDP, jobs.StrategyZeRO3} {
		spec := func(batch int) *jobs.Job {
			return withStrategy(t, strategy, strings.Replace(fmt.Sprintf(mlp, batch), "7 steps", "2 steps", 1)+"async = true\n")
		}
		stopAndResume(t, spec(6))
		deathAndResume(t, spec(10))
	}
}

// asyncJob returns a job with async checkpoints every few steps.
func asyncJob(t *testing.T, strategy jobs.Strategy, more string) *jobs.Job {
	return withStrategy(t, strategy, fmt.Sprintf(mlp, 2)+"async = true\n"+more)
}

// breakSaves makes the checkpoint directory unwritable as soon as it has a checkpoint of a step,
// and makes it writable again when a save has failed.
func breakSaves(t *testing.T, dir string, broken *bool) func(int, *Options) {
	away := dir + "-away"
	swap := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Error(err)
		}
	}
	return func(rank int, o *Options) {
		smallBuckets(rank, o)
		if rank != 0 {
			return
		}
		inner := o.Observe
		o.Observe = func(e Event) {
			inner(e)
			switch {
			case e.Kind == Saved && e.Step > 0 && !*broken:
				*broken = true
				swap(dir, away)
				if err := os.WriteFile(dir, nil, 0o600); err != nil {
					t.Error(err)
				}
			case e.Kind == Unsaved:
				if err := os.Remove(dir); err == nil {
					swap(away, dir)
				}
			}
		}
	}
}

// TestFailedAsyncSaveStopsRun checks that a failed async save stops the run and leaves existing
// checkpoints intact.
func TestFailedAsyncSaveStopsRun(t *testing.T) {
	for _, strategy := range strategyNames {
		dir, broken := filepath.Join(t.TempDir(), "checkpoints"), false
		_, _, errs := world(t, 2, asyncJob(t, strategy, ""), dir, breakSaves(t, dir, &broken))
		if !broken || errs[0] == nil || !strings.Contains(errs[0].Error(), "save checkpoint of step") || !strings.Contains(errs[0].Error(), dir) {
			t.Errorf("%s: %v, %v", strategy, broken, errs)
		}
		s, skipped, err := checkpoint.Load(t.Context(), dir+"-away")
		if err != nil || len(skipped) > 0 || s.Manifest.Step == 0 {
			t.Fatalf("%s: %v, %v", strategy, skipped, err)
		}
		s.Close()
	}
}

// TestFailedSaveIsRetried checks that a run with on_error = "continue" reports a failed save and
// saves again when the next save is due. Its result equals the result of an undisturbed run.
func TestFailedSaveIsRetried(t *testing.T) {
	undisturbed := t.TempDir()
	_, _, errs := world(t, 2, asyncJob(t, jobs.StrategyDDP, ""), undisturbed, smallBuckets)
	ok(t, errs)
	step, want := digests(t, undisturbed)
	for _, strategy := range strategyNames {
		for _, async := range []string{"true", "false"} {
			dir, broken := filepath.Join(t.TempDir(), "checkpoints"), false
			j := withStrategy(t, strategy, fmt.Sprintf(mlp, 2)+"on_error = \"continue\"\nasync = "+async+"\n")
			events, _, errs := world(t, 2, j, dir, breakSaves(t, dir, &broken))
			ok(t, errs)
			unsaved, saved := 0, 0
			for _, e := range events {
				switch {
				case e.Kind == Unsaved:
					unsaved++
				case e.Kind == Saved && unsaved > 0:
					saved++
				}
			}
			if got, sums := digests(t, dir); got != step || sums != want || unsaved == 0 || saved == 0 {
				t.Errorf("%s, async = %s: step %d, %d times unsaved and %d times saved after", strategy, async, got, unsaved, saved)
			}
		}
	}
}

// TestLastSaveMustSucceed checks that a failure of the first or last save stops the run even with
// on_error = "continue".
func TestLastSaveMustSucceed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	_, _, errs := world(t, 1, asyncJob(t, jobs.StrategyDDP, "on_error = \"continue\"\n"), dir, func(rank int, o *Options) {
		o.Observe = func(e Event) {
			if e.Kind == Trained {
				os.RemoveAll(dir)
				os.WriteFile(dir, nil, 0o600)
			}
		}
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "save checkpoint of step") {
		t.Errorf("got %v", errs[0])
	}
	if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var first []Event
	_, _, errs = world(t, 1, asyncJob(t, jobs.StrategyDDP, "on_error = \"continue\"\n"), dir, func(_ int, o *Options) {
		o.Observe = func(e Event) { first = append(first, e) }
	})
	if errs[0] == nil || len(first) > 1 {
		t.Errorf("got %v, %v", errs[0], first)
	}
}
