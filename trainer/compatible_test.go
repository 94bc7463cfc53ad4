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

// TestEveryChangeOfTheJobIsNamed checks that a resume is rejected if a setting that affects the
// result has changed. One error lists all changes with both values, and no checkpoint changes.
func TestEveryChangeOfTheJobIsNamed(t *testing.T) {
	dir := t.TempDir()
	text := strings.Replace(fmt.Sprintf(mlp, 50), "epochs = 3", "epochs = 1", 1)
	_, _, errs := world(t, 1, job(t, text), dir, nil)
	ok(t, errs)
	before := contents(t, dir)
	for _, c := range []struct{ from, to, want string }{
		{"seed = 1", "seed = 2", `train.seed was 1 and is 2`},
		{"log_every", "precision = \"bf16\"\nlog_every", `train.precision was "fp32" and is "bf16"`},
		{"[16]", "[16, 16]", `train.model.hidden was [16] and is [16,16]`},
		{"[16]", "[16]\nactivation = \"tanh\"", `train.model.activation was "relu" and is "tanh"`},
		{"[16]", "[16]\ndropout = 0.5", `train.model.dropout was not set and is 0.5`},
		{"samples = 203", "samples = 204", `train.data.samples was 203 and is 204`},
		{"samples = 203", "samples = 203\nshuffle = false", `train.data.shuffle was true and is false`},
		{"inputs = 5", "inputs = 6", `train.data.inputs was 5 and is 6`},
		{"outputs = 4", "outputs = 3", `train.data.outputs was 4 and is 3`},
		{"lr = 0.1", "lr = 0.2", `train.optimizer.lr was 0.1 and is 0.2`},
		{"momentum = 0.9", "momentum = 0.8", `train.optimizer.momentum was 0.9 and is 0.8`},
		{"momentum = 0.9", "momentum = 0.9\nweight_decay = 0.1", `train.optimizer.weight_decay was not set and is 0.1`},
		{"[checkpoint]", "[train.schedule]\nkind = \"cosine\"\nsteps = 9\n[checkpoint]", `train.schedule.kind was not set and is "cosine"`},
		{"kind = \"sgd\"\nlr = 0.1\nmomentum = 0.9", "kind = \"adam\"\nlr = 0.1", `train.optimizer.kind was "sgd" and is "adam"`},
	} {
		changed := strings.Replace(text, c.from, c.to, 1)
		_, _, errs := world(t, 1, job(t, longer(changed)), dir, nil)
		if errs[0] == nil || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.to, errs[0], c.want)
		}
	}
	if contents(t, dir) != before {
		t.Error("checkpoints have changed")
	}
	edited := strings.NewReplacer("lr = 0.1", "lr = 0.2", "seed = 1", "seed = 2").Replace(text)
	_, _, errs = world(t, 1, job(t, longer(edited)), dir, nil)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), `train.optimizer.lr was 0.1 and is 0.2; train.seed was 1 and is 2`) {
		t.Errorf("both: %v", errs[0])
	}
}

// TestCompatibleChangesAreAccepted checks that a resume accepts changes to output, retention, the
// strategy, and the number of samples and ranks.
func TestCompatibleChangesAreAccepted(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(mlp, 50), "epochs = 3", "epochs = 1", 1)
	for _, c := range []struct{ from, to string }{
		{"log_every = \"1 step\"", "log_every = \"2 steps\""},
		{"epochs = 1", "epochs = 2"},
		{"batch = 50", "batch = 40\naccumulate = 2"},
		{"epochs = 1", "epochs = 2\nstrategy = \"zero3\"\nbucket = \"1 KiB\""},
		{"every = \"7 steps\"", "every = \"3 steps\"\nasync = true\non_error = \"continue\""},
		{"keep = 100", "keep = 1\nkeep_every = \"1 epoch\""},
	} {
		dir := t.TempDir()
		_, _, errs := world(t, 1, job(t, text), dir, nil)
		ok(t, errs)
		if _, _, errs := world(t, 2, job(t, strings.Replace(text, c.from, c.to, 1)), dir, nil); errs[0] != nil {
			t.Errorf("%s: %v", c.to, errs[0])
		}
	}
}

// TestForeignCheckpointOfHigherStepIsRejected checks that a run rejects a checkpoint of another
// run in its directory, even if its step is higher, and does not change any checkpoint.
func TestForeignCheckpointOfHigherStepIsRejected(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	text := fmt.Sprintf(mlp, 50)
	stoppedRun(t, 1, withStrategy(t, jobs.StrategyDDP, text), dir, 3)
	own := contents(t, dir)
	_, result, errs := world(t, 1, job(t, text), other, func(_ int, o *Options) { o.Run = "another" })
	ok(t, errs)
	foreign := fmt.Sprintf("step-%08d", result.Step)
	if err := os.Rename(filepath.Join(other, foreign), filepath.Join(dir, foreign)); err != nil {
		t.Fatal(err)
	}
	events, _, errs := world(t, 1, job(t, text), dir, nil)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), `it belongs to a different run ("another", not "run")`) || !strings.Contains(errs[0].Error(), foreign) || len(events) > 0 {
		t.Errorf("got %v, %v", errs[0], events)
	}
	if err := checkpoint.Verify(t.Context(), filepath.Join(dir, foreign)); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, foreign)); err != nil {
		t.Fatal(err)
	}
	if contents(t, dir) != own {
		t.Error("this run's checkpoints have changed")
	}
}

// TestIncompatibleCheckpointIsRejected checks that a run rejects a checkpoint of another run or
// with other settings, with exit code 5.
func TestIncompatibleCheckpointIsRejected(t *testing.T) {
	dir := t.TempDir()
	text := strings.Replace(fmt.Sprintf(mlp, 50), "epochs = 3", "epochs = 1", 1)
	_, _, errs := world(t, 1, job(t, text), dir, nil)
	ok(t, errs)
	for name, tt := range map[string]struct {
		text string
		run  string
		want string
	}{
		"another run":   {text, "other", "belongs to a different run"},
		"another width": {strings.Replace(text, "[16]", "[17]", 1), "run", `was [16] and is [17]`},
		"another rate":  {strings.Replace(text, "lr = 0.1", "lr = 0.2", 1), "run", "lr"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, errs := world(t, 1, job(t, longer(tt.text)), dir, func(_ int, o *Options) { o.Run = tt.run })
			if errs[0] == nil || !strings.Contains(errs[0].Error(), tt.want) {
				t.Errorf("got %v, want %q", errs[0], tt.want)
			}
			var coded interface{ ExitCode() int }
			if !errors.As(errs[0], &coded) || coded.ExitCode() != 5 {
				t.Errorf("exit code of %v", errs[0])
			}
		})
	}
}

// longer increases the number of epochs of a finished job.
func longer(s string) string { return strings.Replace(s, "epochs = 1", "epochs = 2", 1) }

// TestChangedDataAreRejected checks that a resume is rejected if the content of the training data
// has changed.
func TestChangedDataAreRejected(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "data.csv")
	text := strings.Replace(fmt.Sprintf(mlp, 2), "samples = 203\ninputs = 5\noutputs = 4\n", "path = \""+file+"\"\n", 1)
	text = strings.Replace(text, `kind = "synthetic"`, `kind = "csv"`, 1)
	train := func(rows string) error {
		if err := os.WriteFile(file, []byte("x,label\n0.5,0\n0.25,1\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, errs := world(t, 1, job(t, text), filepath.Join(dir, "checkpoints"), nil)
		return errs[0]
	}
	if err := train("1,1\n"); err != nil {
		t.Fatal(err)
	}
	if err := train("1,0\n"); err == nil || !strings.Contains(err.Error(), "the training data have changed since") {
		t.Errorf("got %v", err)
	}
}

// TestDifferentDataAreRejected checks that a run is rejected if the training data differ between
// ranks.
func TestDifferentDataAreRejected(t *testing.T) {
	_, _, errs := world(t, 2, job(t, fmt.Sprintf(mlp, 10)), t.TempDir(), func(rank int, o *Options) {
		if rank == 1 {
			o.Job = job(t, strings.Replace(fmt.Sprintf(mlp, 10), "samples = 203", "samples = 204", 1))
		}
	})
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "differ from rank 0's") {
		t.Errorf("rank 1: %v", errs[1])
	}
}
