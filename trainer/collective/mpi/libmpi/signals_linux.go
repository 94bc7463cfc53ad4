package libmpi

import (
	"syscall"
	"unsafe"
)

// lastSignal is the highest signal number (signal(7)).
const lastSignal = 64

// saved holds the actions of all signals in the kernel's layout: handler, flags, restorer, and
// mask, eight bytes each, on all supported 64-bit CPUs. They are restored without interpretation,
// so the code does not depend on the order of the fields.
type saved [lastSignal + 1][4]uint64

// saveSignals queries the kernel, because the C library hides some signals from its callers.
func saveSignals() (s saved) {
	for n := 1; n <= lastSignal; n++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n), 0, uintptr(unsafe.Pointer(&s[n])), 8, 0, 0)
	}
	return s
}

// restore restores the action of every signal that has changed.
func (s *saved) restore() {
	now := saveSignals()
	for n := 1; n <= lastSignal; n++ {
		if now[n] != s[n] {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&s[n])), 0, 8, 0, 0)
		}
	}
}
