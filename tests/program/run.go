package program

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// Figures returns a run's metrics, or nil before the first ones.
func Figures(t *testing.T, run string) []metrics.Record {
	t.Helper()
	f, err := os.Open(filepath.Join(run, "metrics.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []metrics.Record
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r metrics.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
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
