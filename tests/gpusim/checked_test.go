//go:build cuda

package gpusim_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// TestAccessBeyondMemoryIsFound checks that the checker reports an access one element out of
// bounds with kernel, block, and thread, and accepts valid accesses.
func TestAccessBeyondMemoryIsFound(t *testing.T) {
	if gpusim.IsChecked() {
		reach(t, os.Getenv("GPUSIM_REACH"))
		return
	}
	t.Setenv("GPUSIM_KERNELS", "ptx") // is not passed on
	for what, want := range map[string][]string{
		"nothing":         nil,
		"read":            {"use-after-poison", "READ of size 4", "gpusim_call_add, block 0,0,0, thread 8"},
		"write":           {"use-after-poison", "WRITE of size 4", "gpusim_call_add, block 0,0,0, thread 8"},
		"before":          {"use-after-poison", "READ of size 4", "gpusim_call_add, block 0,0,0, thread 0"},
		"fenced":          {"use-after-poison", "READ of size 4", "gpusim_call_add, block 0,0,0, thread 2"},
		"shared memory":   {"use-after-poison", "WRITE of size 4", "gpusim_call_attention_forward, block 0,0,0, thread 0"},
		"a stream's copy": {"use-after-poison", "READ of size 32"},
	} {
		out, err := gpusim.Checked(t, t.Name(), "GPUSIM_REACH="+what)
		if (err != nil) != (want != nil) {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: want %q\n%s", what, w, out)
			}
		}
	}
}

// reach sums eight elements, or accesses memory out of bounds.
func reach(t *testing.T, what string) {
	bound(t)
	s := must[driver.Stream](t)(driver.NewStream(0))
	const bytes = 32
	var p [3]driver.Ptr
	for i := range p {
		p[i] = must[driver.Ptr](t)(driver.Alloc(bytes))
	}
	sum, a, b, n := p[0], p[1], p[2], int64(bytes/4)
	f, l := kernel(t, "elementwise", "add"), driver.Launch{Block: driver.Dim{X: 32}}
	var args driver.Args
	switch what {
	case "read":
		sum, n = must[driver.Ptr](t)(driver.Alloc(2*bytes)), n+1
	case "write":
		a, n = must[driver.Ptr](t)(driver.Alloc(2*bytes)), n+1
		b = a
	case "before":
		a -= 4
	case "fenced":
		gpusim.Fence(uintptr(b)+8, 8, true)
	case "a stream's copy":
		gpusim.Fence(uintptr(a)+bytes-8, 8, true)
		check(t, s.Copy(b, a, bytes))
	}
	args.Ptr(sum).Ptr(a).Ptr(b).Int64(n)
	if what == "shared memory" { // which needs more of it
		in := struct {
			q, k, v, qStride, kStride, vStride uint64
			dropout                            [6]uint64
			heads, size, queries, keys         uint32
			scale                              float32
			round                              uint32
		}{q: uint64(a), k: uint64(a), v: uint64(a), heads: 1, size: 1, queries: 1, keys: 1}
		f, l = kernel(t, "attention", "attention_forward"), driver.Launch{Block: driver.Dim{X: 128}, Shared: 128}
		args.Reset().Ptr(sum).Int64(1).Ptr(b)
		driver.Struct(&args, &in)
	}
	check(t, s.Launch(f, l, &args))
	check(t, s.Synchronize())
}
