package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// Figures returns a run's metrics, or nil before the first ones. It omits a line that is being written.
func Figures(t *testing.T, run string) []metrics.Record {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "metrics.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []metrics.Record
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		var r metrics.Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// Weights returns the step and the digests of the files of the newest checkpoint. It fails the test
// unless the run has finished.
func Weights(t *testing.T, run string) string {
	t.Helper()
	s, skipped, err := checkpoint.Load(t.Context(), filepath.Join(run, "checkpoints"))
	if err != nil || len(skipped) > 0 || !s.Manifest.Finished {
		t.Fatalf("%s: %v, passed over %v", run, err, skipped)
	}
	out := strconv.Itoa(s.Manifest.Step)
	for _, f := range s.Manifest.Files {
		out += " " + f.Name + "=" + f.SHA256
	}
	return out
}
