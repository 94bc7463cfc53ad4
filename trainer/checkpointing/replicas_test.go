package checkpointing

import (
	"slices"
	"strings"
	"testing"
)

// TestSuspects checks which ranks a ReplicasError names.
func TestSuspects(t *testing.T) {
	for _, tt := range []struct {
		name string
		sums []float64
		want []int // nil if all agree
		text string
	}{
		{"one rank", []float64{7}, nil, ""},
		{"all agree", []float64{7, 7, 7}, nil, ""},
		{"two ranks", []float64{7, 8}, []int{0, 1}, "of rank 0 and rank 1 differ, and no majority"},
		{"rank 0 alone", []float64{8, 7, 7}, []int{0}, "of rank 0 differ from those of the other ranks"},
		{"two different faults", []float64{7, 8, 9, 7}, []int{1, 2}, "of ranks 1, 2 differ from"},
		{"two against two", []float64{7, 8, 8, 7}, []int{0, 1, 2, 3}, "of ranks 0, 3 and ranks 1, 2 differ, and no majority"},
		{"three opinions", []float64{7, 8, 9}, []int{0, 1, 2}, "of rank 0 and rank 1 and rank 2 differ, and no majority"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			groups := groupEqual(tt.sums)
			if len(groups) == 1 && tt.want == nil {
				return
			}
			e := ReplicasError{what: "weights", groups: groups}
			if got := e.Suspects(); !slices.Equal(got, tt.want) || !strings.Contains(e.Error(), tt.text) {
				t.Errorf("got %v, %q, want %v, %q", got, e.Error(), tt.want, tt.text)
			}
		})
	}
}
