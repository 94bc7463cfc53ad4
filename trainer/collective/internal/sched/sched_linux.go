package sched

import (
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Yield lets another process run on this core.
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Core returns the core that this thread runs on, from 0, or [NoCore].
func Core() int {
	var core uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); errno != 0 {
		return NoCore
	}
	return int(core)
}

// Idle returns the idle time of each core since boot, in units of [Tick]. The time of an offline
// core is -1. Idle returns nil if the times are not available. See proc_stat(5).
func Idle() []int64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	return parseIdle(text)
}

// CPUTime returns the CPU time of this process since its start.
func CPUTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Move moves this thread to a core, if it may use that core, and reports whether it did. The
// scheduler may move the thread away later.
func Move(core int) bool {
	runtime.LockOSThread() // otherwise the goroutine may change threads in between
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
