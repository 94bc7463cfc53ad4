package inspect

import (
	"fmt"
	"testing"
)

// TestSummarize checks the sentence about ranks, and which rank differs.
func TestSummarize(t *testing.T) {
	ranks := func(source string, doing ...string) (all []Rank) {
		for i, d := range doing {
			all = append(all, Rank{Rank: i, Host: fmt.Sprintf("n%02d", i/2), PID: 100 + i, Doing: d, Source: source})
		}
		return all
	}
	const reduce, read = "all_reduce (torch.py:10)", "read (io.py:5)"
	for _, tt := range []struct {
		name  string
		ranks []Rank
		world int
		want  string
		odd   int // -1 for none
	}{
		{"one differs", ranks("py-spy", reduce, reduce, reduce, read), 4, "3 of 4 ranks are in " + reduce + "; rank 3 on n01 is in " + read, 3},
		{"first differs", ranks("py-spy", read, reduce, reduce), 3, "2 of 3 ranks are in " + reduce + "; rank 0 on n00 is in " + read, 0},
		{"two groups", ranks("py-spy", reduce, reduce, read, read), 4, "2 of 4 ranks are in " + reduce + "; ranks 2, 3 are in " + read, -1},
		{"all the same", ranks("kernel", "sleeping", "sleeping"), 2, "all 2 ranks are sleeping", -1},
		{"two ranks", ranks("kernel", "sleeping", "running"), 2, "rank 0 on n00 is sleeping; rank 1 on n00 is running", -1},
		{"ranks missing", ranks("kernel", "sleeping", "sleeping"), 4, "2 of 4 ranks are sleeping; 2 ranks not found", -1},
		{"control characters", ranks("kernel", "a\x1b[0mb"), 1, `rank 0 on n00 is a[0mb`, -1},
		{"none", nil, 2, "2 ranks not found", -1},
		{"many groups", ranks("kernel", "a", "b", "c", "d", "e"), 5, "rank 0 on n00 is a; rank 1 on n00 is b; rank 2 on n01 is c; rank 3 on n01 is d; 1 group elsewhere", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			groups := GroupRanks(tt.ranks)
			if got := Summarize(groups, tt.world); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			odd := -1
			if r, ok := Odd(groups); ok {
				odd = r.Rank
			}
			if odd != tt.odd {
				t.Errorf("got rank %d, want %d", odd, tt.odd)
			}
		})
	}
	if r, ok := Stopped(ranks("kernel", "sleeping", "stopped by a signal")); !ok || r.Rank != 1 {
		t.Errorf("got rank %d, %v, want rank 1", r.Rank, ok)
	}
	if _, ok := Stopped(ranks("kernel", "stopped by a signal", "stopped by a debugger")); ok {
		t.Error("one of two stopped ranks")
	}
}
