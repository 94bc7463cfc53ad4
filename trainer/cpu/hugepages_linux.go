package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// useHugePages asks the kernel for pages of 2 MiB under a large piece of memory,
// where streaming over it would otherwise miss in the TLB on every page. That a
// kernel does not have them is no error.
func useHugePages(memory []byte) {
	const huge, page = 2 << 20, 4096
	if len(memory) < 2*huge {
		return
	}
	skip := (page - int(uintptr(unsafe.Pointer(&memory[0]))%page)) % page
	_ = unix.Madvise(memory[skip:len(memory)/page*page], unix.MADV_HUGEPAGE)
}
