package jobfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// loadTraining loads a sweep of jobs that train on CSV files with the given numbers of samples. Fewer than ten
// samples are an error.
func loadTraining(t *testing.T, sweep string, samples map[string]int) error {
	t.Helper()
	path, base := writeJob(t, `name = "x"
[train]
epochs = 1
batch = 10
optimizer = { kind = "sgd", lr = 0.1 }
model = { kind = "linear" }
data = { kind = "csv", path = "a.csv", target = "y", task = "regression", drop_last = true }
[sweep.grid]
`+sweep)
	for name, n := range samples {
		if err := os.WriteFile(filepath.Join(base, name), []byte("x,y\n"+strings.Repeat("1,2\n", n)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Loader{}.Load(path, base)
	return err
}

// TestMissingFilesAreLimited checks the number of errors about the files of a sweep.
func TestMissingFilesAreLimited(t *testing.T) {
	for _, n := range []int{jobs.MaxDiagnostics, jobs.MaxDiagnostics + 20} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("%q", fmt.Sprintf("%d.csv", i)))
		}
		var got jobs.Diagnostics
		err := loadTraining(t, `"train.data.path" = [`+strings.Join(names, ",")+"]\n", nil)
		if !errors.As(err, &got) || len(got) != min(n, jobs.MaxDiagnostics+1) {
			t.Fatalf("%d missing files: got %d errors, want %d", n, len(got), min(n, jobs.MaxDiagnostics+1))
		}
		if hasMore := got[len(got)-1].Message == "and more errors"; hasMore != (n > jobs.MaxDiagnostics) {
			t.Errorf("%d missing files: the last error is %q", n, got[len(got)-1].Message)
		}
	}
}

// TestCountedDataSetsAreLimited checks that trials with different seeds do not read their data again, and that
// the number of data sets whose samples are counted is limited.
func TestCountedDataSetsAreLimited(t *testing.T) {
	for n, want := range map[int]bool{1: true, maxCounts - 1: true, maxCounts: false} {
		var names []string
		samples := map[string]int{"few.csv": 1}
		for i := range n {
			name := fmt.Sprintf("%d.csv", i)
			names, samples[name] = append(names, fmt.Sprintf("%q", name)), 100
		}
		seeds := "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18"
		err := loadTraining(t, `"train.data.path" = [`+strings.Join(names, ",")+`,"few.csv"]`+"\n\"train.seed\" = ["+seeds+"]\n", samples)
		if got := err != nil; got != want || got && !strings.Contains(err.Error(), "sample") {
			t.Errorf("%d data sets before the one with too few samples: got %v, want an error %v", n, err, want)
		}
	}
}
