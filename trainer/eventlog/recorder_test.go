package eventlog

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer"
)

// TestRecorder checks that the recorder writes metrics.jsonl and a TensorBoard event file, and
// that a resumed run creates a new event file.
func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	for _, from := range []int{0, 10} {
		r := Recorder{Path: filepath.Join(dir, "metrics.jsonl"), TensorBoardDir: filepath.Join(dir, "tensorboard"), Host: "n1"}
		for _, e := range []trainer.Event{
			{Kind: trainer.Started, Step: from},
			{Kind: trainer.Trained, Step: from + 10, Loss: 2, LR: 0.5, SamplesPerSecond: 7, Communication: &trainer.Communication{Hidden: 0.5}},
			{Kind: trainer.Saved, Step: from + 10},
			{Kind: trainer.Evaluated, Step: from + 10, Loss: 3, Accuracy: 0.25},
			{Kind: trainer.Evaluated, Step: from + 10, Loss: 3, Accuracy: math.NaN()},
		} {
			if err := r.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(lines, []byte("\n")); got != 6 {
		t.Errorf("%d lines, want 6:\n%s", got, lines)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Join(dir, "tensorboard"), "events.out.tfevents.*.n1.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("event files %v, %v", files, err)
	}
	var all []byte
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	for tag, n := range map[string]int{"train/loss": 2, "train/lr": 2, "train/samples_per_s": 2, "train/tokens_per_s": 0, "train/comm_hidden": 2, "eval/loss": 4, "eval/accuracy": 2} {
		if got := bytes.Count(all, slices.Concat([]byte{10, byte(len(tag))}, []byte(tag))); got != n {
			t.Errorf("tag %s: got %d, want %d", tag, got, n)
		}
	}
	// The recorder returns an error if it cannot write.
	r := Recorder{Path: filepath.Join(dir, "missing", "metrics.jsonl"), TensorBoardDir: filepath.Join(dir, "missing", "tensorboard"), Host: "n1"}
	if err := r.Write(trainer.Event{Kind: trainer.Started}); err == nil {
		t.Error("no error for a missing directory")
	}
}

// TestRecorderFollowsNoLink checks that a recorder with an open directory writes no event file through
// a link that leads out of it.
func TestRecorderFollowsNoLink(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r := Recorder{Root: root, Path: filepath.Join(dir, "metrics.jsonl"), TensorBoardDir: filepath.Join(dir, "tensorboard"), Host: "../n1"}
	if err := os.Symlink(other, r.TensorBoardDir); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(trainer.Event{Kind: trainer.Started}); err == nil {
		t.Error("no error for a link")
	}
	if err := os.Remove(r.TensorBoardDir); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(trainer.Event{Kind: trainer.Started}); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(other); len(left) != 0 {
		t.Errorf("files behind the link: %v", left)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "tensorboard", "events.*")); len(files) != 1 {
		t.Errorf("event files: %q", files)
	}
}
