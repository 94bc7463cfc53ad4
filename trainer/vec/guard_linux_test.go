package vec_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// guarded returns a page between two inaccessible pages.
func guarded(t *testing.T) []byte {
	t.Helper()
	page := unix.Getpagesize()
	memory, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	for _, guard := range [][]byte{memory[:page], memory[2*page:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return memory[page : 2*page]
}

// TestKernelsStayInBounds checks that kernels do not read or write past a slice, not even under a
// mask. A fault would stop the test.
func TestKernelsStayInBounds(t *testing.T) {
	var pages [5][]byte
	for i := range pages {
		pages[i] = guarded(t)
	}
	for _, atEnd := range []bool{true, false} {
		for n := 1; n <= 150; n++ {
			a := arena{nums: newArena(0, 0).nums}
			first := func(page []byte, size int) unsafe.Pointer {
				if atEnd {
					return unsafe.Pointer(&page[len(page)-size])
				}
				return unsafe.Pointer(&page[0])
			}
			for i := range a.f {
				a.f[i] = unsafe.Slice((*float32)(first(pages[i], 4*n)), n)
			}
			a.h = unsafe.Slice((*uint16)(first(pages[4], 2*n)), n)
			a.fill(uint64(n), 0)
			for _, c := range calls {
				for _, name := range vec.Kernels() {
					c.run(vec.Named(name), a)
				}
			}
		}
	}
}
