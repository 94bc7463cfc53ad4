package sched

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Yield lets another process run on this core.
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Core is the core that this thread runs on, from 0, or [Nowhere].
func Core() int {
	var core uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); errno != 0 {
		return Nowhere
	}
	return int(core)
}

// Idle is how long each core has idled since the machine began, in units of [Tick]; -1 for
// one that is off. It is nil where that is not known. See proc_stat(5).
func Idle() []int64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	return parseIdle(text)
}

// Move puts this thread on a core, which it may leave again when the system wants it to.
// It reports whether the thread may use that core.
func Move(core int) bool {
	runtime.LockOSThread() // or the goroutine may change threads on the way
	defer runtime.UnlockOSThread()
	var may, one unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil || !may.IsSet(core) {
		return false
	}
	one.Set(core)
	if unix.SchedSetaffinity(0, &one) != nil {
		return false
	}
	return unix.SchedSetaffinity(0, &may) == nil
}
