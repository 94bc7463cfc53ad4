package sched

import (
	"slices"
	"testing"
)

// TestParseIdle checks the idle time of each core in /proc/stat, with missing cores and invalid
// lines.
func TestParseIdle(t *testing.T) {
	for text, want := range map[string][]int64{
		"cpu  9 9 9 99 9 0 0 0 0 0\ncpu0 1 2 3 40 5 0 0 0 0 0\ncpu1 1 2 3 7 0 0 0 0 0 0\nintr 5\ncpu2 1 2 3 4 5 6\n": {45, 7},
		"cpu  9 9 9 99 9\ncpu1 1 2 3 40 5\ncpu3 1 2 3 7 1\n":                                                         {-1, 45, -1, 8},
		"cpu  9\ncpu0 1 2 3 x 5 6\ncpu1 1 2\ncpu99999999 1 2 3 4 5\n":                                                {-1},
		"":      nil,
		"cpu":   nil,
		"cpu\n": nil,
	} {
		if got := parseIdle([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
