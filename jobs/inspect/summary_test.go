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
		{"one runs", ranks("kernel", "sleeping in the kernel function a", "running", "sleeping in the kernel function b"), 3, "rank 0 on n00 is sleeping in the kernel function a; rank 1 on n00 is running; rank 2 on n01 is sleeping in the kernel function b", 1},
		{"two run", ranks("kernel", "sleeping", "running", "running", "a"), 4, "2 of 4 ranks are running; rank 0 on n00 is sleeping; rank 3 on n01 is a", -1},
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
	if r, ok := Stopped(ranks("kernel", "sleeping", "stopped by SIGSTOP")); !ok || r.Rank != 1 {
		t.Errorf("got rank %d, %v, want rank 1", r.Rank, ok)
	}
	if _, ok := Stopped(ranks("kernel", "stopped by a signal", "stopped by a debugger")); ok {
		t.Error("one of two stopped ranks")
	}
}

// TestSummarizeStacks checks the sentence and the suspect for ranks with stacks.
func TestSummarizeStacks(t *testing.T) {
	const (
		reduce  = "  File \"/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py\", line 10 in all_reduce\n"
		barrier = "  File \"/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py\", line 20 in barrier\n"
		elastic = "  File \"/opt/lib/python3.12/site-packages/torch/distributed/elastic/errors.py\", line 30 in wrapper\n"
		train   = "  File \"/home/a/train.py\", line 1 in train\n"
		test    = "  File \"/home/a/train.py\", line 2 in test\n"
		main    = "  File \"/home/a/train.py\", line 3 in <module>\n"
	)
	for _, tt := range []struct {
		name   string
		stacks []string
		want   string
		odd    int // -1 for none
	}{
		{"a different collective", []string{reduce + train, reduce + train, barrier + train},
			"2 of 3 ranks are in all_reduce (torch/distributed/distributed_c10d.py:10); rank 2 on n02 is in barrier (torch/distributed/distributed_c10d.py:20)", 2},
		{"the same collective elsewhere", []string{reduce + train + main, reduce + test + main, reduce + train + main},
			"2 of 3 ranks are in all_reduce (torch/distributed/distributed_c10d.py:10), called from train (train.py:1); rank 1 on n01 is in all_reduce (torch/distributed/distributed_c10d.py:10), called from test (train.py:2)", 1},
		{"outside of torch.distributed", []string{reduce + train, barrier + train, test + elastic + main},
			"rank 0 on n00 is in all_reduce (torch/distributed/distributed_c10d.py:10); rank 1 on n01 is in barrier (torch/distributed/distributed_c10d.py:20); rank 2 on n02 is in test (train.py:2)", 2},
		{"the same stacks", []string{reduce + train, reduce + train}, "all 2 ranks are in all_reduce (torch/distributed/distributed_c10d.py:10)", -1},
		{"two outside", []string{train, test, reduce}, "rank 0 on n00 is in train (train.py:1); rank 1 on n01 is in test (train.py:2); rank 2 on n02 is in all_reduce (torch/distributed/distributed_c10d.py:10)", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var ranks []Rank
			for i, stack := range tt.stacks {
				r := Rank{Rank: i, Host: fmt.Sprintf("n%02d", i), PID: i + 1}
				if !r.setStack("Current thread 0x01 (most recent call first):\n"+stack, sourceFaulthandler) {
					t.Fatal("no frames")
				}
				ranks = append(ranks, r)
			}
			groups := GroupRanks(ranks)
			if got := Summarize(groups, len(ranks)); got != tt.want {
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
}
