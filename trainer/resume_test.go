package trainer

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// stopAfter makes rank 0 request a stop in the step after the first event of that kind in or after
// the given step.
func stopAfter(kind Kind, step int) func(int, *Options) {
	return func(rank int, o *Options) {
		if rank != 0 {
			return
		}
		stop, inner := make(chan struct{}), o.Observe
		o.Stop = stop
		asked := false
		o.Observe = func(e Event) {
			inner(e)
			if !asked && e.Kind == kind && e.Step >= step {
				asked = true
				close(stop)
			}
		}
	}
}

// TestCorruptCheckpointKeepsValidOnes checks that a run with keep = 1 that skips a corrupt
// checkpoint and stops before its step loses no valid checkpoint. It ends with bit-identical
// weights.
func TestCorruptCheckpointKeepsValidOnes(t *testing.T) {
	text := fmt.Sprintf(mlp, 6)
	whole := t.TempDir()
	_, _, errs := world(t, 2, job(t, text), whole, nil)
	ok(t, errs)
	wantStep, want := digests(t, whole)

	dir := t.TempDir()
	_, result, errs := world(t, 2, job(t, text), dir, stopAfter(Trained, 19))
	ok(t, errs)
	s, _, err := checkpoint.Load(t.Context(), dir)
	if err != nil || s.Manifest.Step != result.Step {
		t.Fatal(s, err)
	}
	s.Close()
	if err := os.Truncate(filepath.Join(s.Path, checkpoint.ModelFile), 100); err != nil {
		t.Fatal(err)
	}

	often := job(t, strings.NewReplacer("7 steps", "2 steps", "keep = 100", "keep = 1").Replace(text))
	events, below, errs := world(t, 2, often, dir, stopAfter(Trained, 16))
	ok(t, errs)
	if events[0].Kind != CheckpointSkipped || below.Step >= result.Step {
		t.Fatalf("first event %+v, stopped at step %d", events[0], below.Step)
	}
	s, skipped, err := checkpoint.Load(t.Context(), dir)
	if err != nil || s.Manifest.Step != below.Step || len(skipped) != 1 {
		t.Fatalf("loaded %+v after the stop at step %d, passed over %v: %v", s, below.Step, skipped, err)
	}
	s.Close()
	_, _, errs = world(t, 2, often, dir, nil)
	ok(t, errs)
	if step, got := digests(t, dir); step != wantStep || got != want {
		t.Errorf("other weights at step %d", step)
	}
	if left, err := checkpoint.List(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestSkippedStepsCountAcrossStop checks that the count of consecutive skipped steps survives a
// stop.
func TestSkippedStepsCountAcrossStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.csv")
	rows := "1,1\n2,2\n" + strings.Repeat("3e38,-3e38\n3e38,-3e38\n", maxSkipped+1) + "1,1\n1,1\n"
	if err := os.WriteFile(path, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	j, dir := job(t, fmt.Sprintf(csv, "skip", path)), t.TempDir()
	_, result, errs := world(t, 2, j, dir, stopAfter(Skipped, 5))
	ok(t, errs)
	if !result.Stopped || result.Step != 7 {
		t.Fatalf("stopped %v after %d steps, want 7", result.Stopped, result.Step)
	}
	_, _, errs = world(t, 2, j, dir, nil)
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("at step %d", 1+maxSkipped)) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestResumeReadsInPlace checks that a resume reads a checkpoint directly into the memory of the
// model and the optimizer, without a copy.
func TestResumeReadsInPlace(t *testing.T) {
	text := strings.NewReplacer("[16]", "[700, 700]", `kind = "sgd"`, `kind = "adamw"`, "momentum = 0.9\n", "").Replace(fmt.Sprintf(mlp, 2))
	dir := t.TempDir()
	resumed := false
	fresh := func() *run {
		j := job(t, text)
		r := newRun(Options{Job: j, Checkpoints: dir, Comm: collective.SingleRank{}, Observe: func(e Event) { resumed = resumed || e.Kind == Started && e.Path != "" }})
		if err := r.build(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := fresh()
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = fresh()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := r.start(t.Context())
	runtime.ReadMemStats(&after)
	if err != nil || !resumed {
		t.Fatalf("nothing was loaded: %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*700*700 {
		t.Errorf("%d bytes for a model of over %d", took, 4*700*700)
	}
}

// TestResumeChecksTheDirectoryBeforeTheFirstStep checks that a resumed run fails before its first
// step, not after an interval of training, if the next save would reject the directory.
func TestResumeChecksTheDirectoryBeforeTheFirstStep(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"others can write": {func(t *testing.T, dir string) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}, "has mode 0777"},
		"a symbolic link": {func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+"-moved"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(dir+"-moved", dir); err != nil {
				t.Fatal(err)
			}
		}, "is a symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			_, _, errs := world(t, 2, job(t, fmt.Sprintf(mlp, 6)), dir, stopAfter(Trained, 5))
			ok(t, errs)
			tt.change(t, dir)
			events, _, errs := world(t, 2, job(t, fmt.Sprintf(mlp, 6)), dir, nil)
			if errs[0] == nil || !strings.Contains(errs[0].Error(), tt.want) {
				t.Errorf("%v, want %q", errs[0], tt.want)
			}
			for _, e := range events {
				if e.Kind == Trained {
					t.Errorf("trained: %v", e)
				}
			}
		})
	}
}
