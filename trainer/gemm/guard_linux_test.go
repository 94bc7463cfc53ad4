package gemm_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// guarded returns n elements that end, or begin, at an inaccessible page.
func guarded(t *testing.T, n int, atEnd bool) []float32 {
	t.Helper()
	page := unix.Getpagesize()
	size := (n*4 + page - 1) / page * page
	memory, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	for _, guard := range [][]byte{memory[:page], memory[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	first := page
	if atEnd {
		first = page + size - n*4
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&memory[first])), n)
}

// TestKernelsStayInBounds checks that kernels do not read or write past a matrix, not even under a
// mask. A fault would stop the test.
func TestKernelsStayInBounds(t *testing.T) {
	for _, atEnd := range []bool{true, false} {
		for _, m := range []int{1, 13, 30, gemm.PackRows} {
			for _, n := range []int{1, 15, 20, 33, gemm.PackCols} {
				for _, k := range []int{1, 19, 32} {
					a, b, c, bias := guarded(t, m*k, atEnd), guarded(t, k*n, atEnd), guarded(t, m*n, atEnd), guarded(t, n, atEnd)
					for way := range 4 {
						ma, mb := gemm.Dense(a, m, k), gemm.Dense(b, k, n)
						if way&1 != 0 {
							ma = gemm.Dense(a, k, m).T()
						}
						if way&2 != 0 {
							mb = gemm.Dense(b, n, k).T()
						}
						for _, ws := range workspaces() {
							for _, from := range []gemm.Start{gemm.Zero(), gemm.Accumulate(), gemm.Bias(bias)} {
								gemm.Float32(ws, gemm.Dense(c, m, n), ma, mb, from)
								gemm.BFloat16(ws, gemm.Dense(c, m, n), ma, mb, from)
							}
						}
					}
				}
			}
		}
	}
}
