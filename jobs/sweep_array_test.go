package jobs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSweepArray checks the indices of a sweep in the format of sbatch --array.
func TestSweepArray(t *testing.T) {
	const file = "name = \"x\"\n[sweep]\narray = %q\n[command]\nargv = [\"train\"]\n"
	for _, tt := range []struct {
		array    string
		want     []int
		throttle int
	}{
		{"0-3", []int{0, 1, 2, 3}, 0},
		{"0-20:5%4", []int{0, 5, 10, 15, 20}, 4},
		{"7,1,3,1-2", []int{1, 2, 3, 7}, 0},
		{"5", []int{5}, 0},
		{"1-10:4", []int{1, 5, 9}, 0},
	} {
		job, err := Parse("job.toml", fmt.Appendf(nil, file, tt.array))
		if err != nil {
			t.Errorf("%s: %v", tt.array, err)
			continue
		}
		var got []int
		for i, trial := range job.Sweep.Trials {
			got = append(got, *trial.Job.Setup.ArrayTask)
			if source, err := trial.Job.Source(); trial.Index != i || err != nil || !strings.Contains(string(source), fmt.Sprintf("array_task = %d\n", tt.want[i])) {
				t.Errorf("%s: trial %d with index %d: %v\n%s", tt.array, i, trial.Index, err, source)
			}
		}
		if !slices.Equal(got, tt.want) || job.Sweep.Throttle != tt.throttle {
			t.Errorf("%s: got %d, at most %d, want %d, at most %d", tt.array, got, job.Sweep.Throttle, tt.want, tt.throttle)
		}
	}
	if got, _, err := ArrayRange("0-4999,0-4999,0-4999,5000").Parse(); err != nil || len(got) != 5001 {
		t.Errorf("repeated indices: got %d of 5001, %v", len(got), err)
	}
	for array, want := range map[string]string{
		"all": "is not a list of indices", "": "is not a list of indices", "1;id": "is not a list of indices", "-1": "is not a list of indices",
		"5-1": "contains no index", "1-5:0": "contains no index", "0-3%0": "never start", "99999999999": "is too large", "0-20000": "more than 10000 trials",
		strings.Repeat("0-9999,", 10) + "0": "more than 100000 indices",
	} {
		if _, err := Parse("job.toml", fmt.Appendf(nil, file, array)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", array, err, want)
		}
	}
}
