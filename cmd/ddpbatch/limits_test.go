package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// TestCheckHasTheTrainersLimits checks that the largest valid model in a job file is also the
// largest model that the trainer accepts. It does the same for the vocabulary size.
func TestCheckHasTheTrainersLimits(t *testing.T) {
	const file = "name = \"x\"\ntrain = { epochs = 1, batch = 1, model = { %s }, data = { %s }, optimizer = { kind = \"sgd\", lr = 1 } }\n"
	describe := func(model, data string) func(int) error {
		return func(n int) error {
			text := strings.ReplaceAll(fmt.Sprintf(file, model, data), "N", fmt.Sprint(n))
			_, err := jobs.Parse("job.toml", []byte(text))
			return err
		}
	}
	tokens := filepath.Join(t.TempDir(), "tokens.bin")
	if err := os.WriteFile(tokens, make([]byte, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		job, trainer func(int) error
		most         int
	}{
		"gpt": {
			describe(`kind = "gpt", layers = 12, heads = 1, width = N, context = 1024`, `kind = "tokens", path = "a", vocabulary_size = 50257`),
			func(n int) error {
				_, err := nn.NewGPT(nn.GPTOptions{Vocabulary: 50257, Context: 1024, Layers: 12, Heads: 1, Width: n})
				return err
			}, 1 << 16,
		},
		"mlp": {
			describe(`kind = "mlp", hidden = [N, N]`, `kind = "synthetic", task = "regression", samples = 1, inputs = 20, outputs = 3`),
			func(n int) error {
				_, err := nn.NewMLP(20, nn.MLPOptions{Hidden: []int{n, n}, Activation: "relu"}, 3)
				return err
			}, 1 << 16,
		},
		"vocabulary": {
			describe(`kind = "gpt", size = "gpt2"`, `kind = "tokens", path = "a", vocabulary_size = N`),
			func(n int) error {
				_, _, err := data.Open(t.Context(), data.Options{Kind: "tokens", Path: tokens, Context: 8, DType: "uint16", VocabularySize: n})
				return err
			}, 1 << 21,
		},
	} {
		takes := func(by func(int) error) int {
			low, high := 1, c.most // low is accepted, high is rejected
			for high-low > 1 {
				if middle := (low + high) / 2; by(middle) == nil {
					low = middle
				} else {
					high = middle
				}
			}
			return low
		}
		job, trainer := takes(c.job), takes(c.trainer)
		if job != trainer || job == 1 || job == c.most-1 {
			t.Errorf("%s: a job file may say %d, and the trainer takes %d", name, job, trainer)
		}
		var wrong jobs.Diagnostics
		if err := c.job(job + 1); !errors.As(err, &wrong) || len(wrong) != 1 {
			t.Errorf("%s: one more than %d: %v", name, job, err)
		}
	}
}

// TestNamesOfForeignFilesAreLimited checks that messages name only some of the files in the run of
// another user.
func TestNamesOfForeignFilesAreLimited(t *testing.T) {
	dir := rundir.Dir{Path: t.TempDir()}
	if err := os.Mkdir(dir.Traces(), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxCorruptNotes {
		if err := os.WriteFile(filepath.Join(dir.Traces(), fmt.Sprintf("rank-%05d.jsonl", i)), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var notes strings.Builder
	p := &program{Stderr: &notes}
	if _, corrupt, err := trace.ReadDir(dir.Traces(), true, dir.OpenTrace); err != nil || len(corrupt) != 3*maxCorruptNotes {
		t.Errorf("got %d corrupt recordings, error %v", len(corrupt), err)
	} else {
		p.noteCorrupt(corrupt)
	}
	if n := strings.Count(notes.String(), "\n"); n != maxCorruptNotes+1 || !strings.Contains(notes.String(), fmt.Sprint(2*maxCorruptNotes)) {
		t.Errorf("got %d lines:\n%s", n, notes.String())
	}
}
