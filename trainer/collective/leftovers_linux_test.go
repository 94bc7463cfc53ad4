package collective_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// sockets returns the number of open sockets of this process.
func sockets(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestFailureLeavesNoResources checks that a failure leaves no goroutine, no socket, and no file
// in shared memory.
func TestFailureLeavesNoResources(t *testing.T) {
	for name, nodes := range map[string][]int{"messages": nil, "shared memory": {0, 0, 0, 0}, "nodes": {0, 0, 1, 1}} {
		t.Run(name, func(t *testing.T) {
			const timeout = 500 * time.Millisecond
			routines, open := runtime.NumGoroutine(), sockets(t)
			comms := processes(nodes, nodes != nil, 0)(t, 4, timeout)
			if sockets(t) <= open {
				t.Fatal("no socket is open")
			}
			done := make(chan error)
			for _, c := range comms[1:] { // rank 0 does not enter the operation
				go func() { done <- c.Do(t.Context(), collective.AllReduce(make([]float32, 300_000), collective.Sum)) }()
			}
			for range comms[1:] {
				if err := <-done; err == nil {
					t.Error("summed without rank 0")
				}
			}
			for _, c := range comms {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			end := time.Now().Add(2 * time.Minute)
			for runtime.NumGoroutine() > routines || sockets(t) > open {
				if time.Now().After(end) {
					stacks := make([]byte, 1<<16)
					t.Fatalf("%d goroutines and %d sockets more:\n%s", runtime.NumGoroutine()-routines, sockets(t)-open,
						stacks[:runtime.Stack(stacks, true)])
				}
				time.Sleep(10 * time.Millisecond)
			}
			leftFiles(t)
		})
	}
}
