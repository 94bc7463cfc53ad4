//go:build cuda

package gpusim

import (
	"sync"

	"github.com/ebitengine/purego"
)

// Fence has AddressSanitizer forbid n bytes of a simulated GPU's memory, or allow them
// again, in a process that Checked has started. It is exact but for up to 7 bytes where
// forbidden memory ends.
func Fence(at uintptr, n int, forbidden bool) {
	on := int32(0)
	if forbidden {
		on = 1
	}
	fence()(at, uintptr(n), on)
}

var fence = sync.OnceValue(func() (f func(at, n uintptr, forbidden int32)) {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW)
	if err != nil {
		panic(err) // the process was started with it
	}
	purego.RegisterLibFunc(&f, lib, "gpusim_fence")
	return f
})
