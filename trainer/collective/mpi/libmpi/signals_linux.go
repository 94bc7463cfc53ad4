package libmpi

import (
	"syscall"
	"unsafe"
)

// lastSignal is the highest number of a signal (signal(7)).
const lastSignal = 64

// saved are the actions of all signals, as the kernel has them: handler, flags,
// restorer and mask of eight bytes each, on all 64-bit processors that this is built
// for. They are written back as they were read, so nothing here depends on what is where.
type saved [lastSignal + 1][4]uint64

// saveSignals asks the kernel, not the C library, which keeps some signals from its
// callers.
func saveSignals() (s saved) {
	for n := 1; n <= lastSignal; n++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n), 0, uintptr(unsafe.Pointer(&s[n])), 8, 0, 0)
	}
	return s
}

// restore gives every signal that another took its action back.
func (s *saved) restore() {
	now := saveSignals()
	for n := 1; n <= lastSignal; n++ {
		if now[n] != s[n] {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&s[n])), 0, 8, 0, 0)
		}
	}
}
