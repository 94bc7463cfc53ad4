package sched

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMove checks that a thread can move to each core that it may use, and to no other, and that
// its CPU affinity does not change.
func TestMove(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var may, still unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	idle := Idle()
	for core := range 8 * len(may) {
		if may.IsSet(core) && (core >= len(idle) || idle[core] < 0) {
			t.Errorf("core %d is not known: %v", core, idle)
		}
		if Move(core) != may.IsSet(core) {
			t.Errorf("moving to core %d: %v", core, !may.IsSet(core))
		}
		if err := unix.SchedGetaffinity(0, &still); err != nil || still != may {
			t.Fatalf("after moving to core %d: %v, %v", core, still, err)
		}
	}
	// The scheduler may move this thread at any time, but not each time.
	for core := range idle {
		for try := 0; may.IsSet(core) && Move(core) && Core() != core; try++ {
			if try == 20 {
				t.Fatalf("moved to core %d, and is on %d", core, Core())
			}
		}
	}
}
