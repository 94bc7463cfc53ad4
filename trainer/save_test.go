package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// TestShardedCheckpointEqualsWhole checks that the tensors of a sharded checkpoint are
// bit-identical to the tensors of ddp's checkpoint. The checkpoint at the end of training has
// whole files.
func TestShardedCheckpointEqualsWhole(t *testing.T) {
	spec := models(t)["gpt"](1)
	dir := t.TempDir()
	stoppedRun(t, 3, withStrategy(t, jobs.StrategyDDP, spec), dir, 5)
	_, want := digests(t, dir)
	for _, strategy := range strategyNames[1:] {
		dir := t.TempDir()
		stoppedRun(t, 3, withStrategy(t, strategy, spec), dir, 5)
		if _, got := digests(t, dir); got != want {
			t.Errorf("%s: other tensors than with ddp", strategy)
		}
		files := func() []string {
			s, _, err := checkpoint.Load(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var names []string
			for _, f := range s.Manifest.Files {
				names = append(names, f.Name)
			}
			return names
		}
		if got := files(); len(got) != 6 || got[0] != "model-rank-00000.safetensors" || got[5] != "optimizer-rank-00002.safetensors" {
			t.Errorf("%s: files %v", strategy, got)
		}
		_, result, errs := world(t, 2, withStrategy(t, strategy, spec), dir, smallBuckets)
		ok(t, errs)
		if got := files(); len(got) != 2 || got[0] != checkpoint.ModelFile || got[1] != checkpoint.OptimizerFile {
			t.Errorf("%s: files %v at the end, step %d", strategy, got, result.Step)
		}
	}
}

// TestCheckpointWithMissingPartIsSkipped checks that Load skips a checkpoint with a missing part
// and uses the previous one.
func TestCheckpointWithMissingPartIsSkipped(t *testing.T) {
	dir := t.TempDir()
	stoppedRun(t, 2, withStrategy(t, jobs.StrategyZeRO3, models(t)["gpt"](1)), dir, 5)
	if err := os.Remove(filepath.Join(dir, "step-00000005", "optimizer-rank-00001.safetensors")); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := checkpoint.Load(t.Context(), dir)
	if err == nil {
		defer s.Close()
	}
	if err != nil || s.Manifest.Step != 3 || len(skipped) != 1 || !strings.Contains(skipped[0].Error(), "optimizer-rank-00001") {
		t.Errorf("step %d, passed over %v, %v", s.Manifest.Step, skipped, err)
	}
}

// TestRankThatCannotWriteItsPart checks that a run fails before the first step, on all ranks, if a
// rank cannot write its part, and that no file remains.
func TestRankThatCannotWriteItsPart(t *testing.T) {
	dir := t.TempDir()
	_, _, errs := world(t, 2, withStrategy(t, jobs.StrategyZeRO2, models(t)["gpt"](1)), dir, func(rank int, o *Options) {
		smallBuckets(rank, o)
		if rank == 1 {
			o.Checkpoints = filepath.Join(dir, "elsewhere")
		}
	})
	var hint interface{ Hint() string }
	if !errors.Is(errs[1], os.ErrNotExist) || !errors.As(errs[1], &hint) || !strings.Contains(hint.Hint(), "share") {
		t.Errorf("rank 1: %v", errs[1])
	}
	if errs[0] == nil || errs[0].Error() != "save checkpoint of step 0: rank 1 could not write its part" {
		t.Errorf("rank 0: %v", errs[0])
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestSlowDiskIsNotATimeout checks that rank 0 may save a checkpoint, or verify checkpoints when a
// run resumes, for longer than the timeout of collectives.
func TestSlowDiskIsNotATimeout(t *testing.T) {
	const timeout = 5 * time.Second
	dir := t.TempDir()
	j := job(t, strings.Replace(fmt.Sprintf(mlp, 50), "7 steps", "100 steps", 1))
	for _, slow := range []Kind{Saved, CheckpointSkipped} {
		comms := collective.Local(2, timeout)
		events, result, errs := world(t, 2, j, dir, func(rank int, o *Options) {
			o.Comm = comms[rank]
			inner := o.Observe
			o.Observe = func(e Event) {
				inner(e)
				if rank == 0 && e.Kind == slow {
					time.Sleep(timeout * 3 / 2)
				}
			}
		})
		for _, c := range comms {
			c.Close()
		}
		ok(t, errs)
		if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == slow }) {
			t.Errorf("no event %v in %v", slow, events)
		}
		corrupt(t, dir, result.Step)
	}
}

// corrupt changes the tensors of a checkpoint, but not its manifest.
func corrupt(t *testing.T, dir string, step int) {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("step-%08d", step), checkpoint.ModelFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1]++
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
