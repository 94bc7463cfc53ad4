package sched

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCoreIsOneThatMayBeUsed(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if core := Core(); !may.IsSet(core) {
			t.Errorf("on core %d", core)
		}
		Doze()
	}
}
