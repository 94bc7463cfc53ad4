package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// useHugePages requests 2 MiB pages for a large buffer, because streaming over it would otherwise
// miss the TLB on every page. It ignores errors, because some kernels do not support huge pages.
func useHugePages(memory []byte) {
	const huge, page = 2 << 20, 4096
	if len(memory) < 2*huge {
		return
	}
	skip := (page - int(uintptr(unsafe.Pointer(&memory[0]))%page)) % page
	_ = unix.Madvise(memory[skip:len(memory)/page*page], unix.MADV_HUGEPAGE)
}
