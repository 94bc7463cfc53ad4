//go:build linux

package collective_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// ways contains the algorithms with which four ranks reduce.
var ways = map[string]worker{
	"ring":     {Size: 1_000_000, TCP: true},
	"doubling": {Size: 1000, TCP: true},
	"memory":   {Size: 1_000_000},
	"nodes":    {Size: 1_000_000, Nodes: []int{0, 1, 1, 2}},
}

// summed waits until all ranks have finished their first sum.
func summed(t *testing.T, ranks []process) {
	t.Helper()
	for r, p := range ranks {
		if got := p.line(t); !strings.HasPrefix(got, "summed ") {
			t.Fatalf("rank %d says %q", r, got)
		}
	}
}

// survivors checks that all other ranks name the silent rank and exit.
func survivors(t *testing.T, ranks []process, silent int, want string) {
	t.Helper()
	for r, p := range ranks {
		if r == silent {
			continue
		}
		got := p.line(t)
		if !strings.HasPrefix(got, "failed: all-reduce ") || !strings.Contains(got, fmt.Sprintf(" with rank %d (127.0.0.1:", silent)) {
			t.Errorf("rank %d says %q", r, got)
		}
		if !strings.Contains(got, "no answer within 3s: that rank "+want) {
			t.Errorf("rank %d says %q, want %q", r, got, want)
		}
		if err := p.Wait(); err == nil {
			t.Errorf("rank %d ended as if nothing were wrong", r)
		}
	}
}

// TestStoppedProcessIsNamed checks that all other ranks name a stopped process, whichever rank
// they wait for.
func TestStoppedProcessIsNamed(t *testing.T) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const silent = 2
			w.Timeout = 3
			ranks := w.start(t, 4)
			summed(t, ranks)
			if err := ranks[silent].Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			survivors(t, ranks, silent, "does not respond to a query of its state")
		})
	}
}

// TestRankThatDoesNotEnterIsNamed checks that the other ranks name a rank that does not enter the
// operation.
func TestRankThatDoesNotEnterIsNamed(t *testing.T) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.Timeout, w.Absent = 3, 3
			ranks := w.start(t, 4)
			summed(t, ranks)
			survivors(t, ranks, w.Absent, "has not entered the operation")
		})
	}
}
