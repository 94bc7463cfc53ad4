package sched

import (
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

// Doze sleeps for an instant, some 60 us by Linux's timer slack. A thread that wakes is
// placed anew: on a core that idles, near the one it was on, where that is busy.
func Doze() {
	instant := unix.Timespec{Nsec: 1}
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&instant)), 0, 0)
}
