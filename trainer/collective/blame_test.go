//go:build linux

package collective_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// ways are those in which four ranks sum.
var ways = map[string]worker{
	"ring":     {Size: 1_000_000, TCP: true},
	"doubling": {Size: 1000, TCP: true},
	"memory":   {Size: 1_000_000},
	"nodes":    {Size: 1_000_000, Nodes: []int{0, 1, 1, 2}},
}

// summed waits until all ranks have got through their first sum.
func summed(t *testing.T, ranks []process) {
	t.Helper()
	for r, p := range ranks {
		if got := p.line(t); !strings.HasPrefix(got, "summed ") {
			t.Fatalf("rank %d says %q", r, got)
		}
	}
}

// survivors have all ranks but one say that it was that one, and end.
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

// A stopped process is named by all others, whoever waits for whom.
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
			survivors(t, ranks, silent, "does not say where it is either")
		})
	}
}

// A rank whose program does something else is named, and with it where it is.
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
