//go:build cuda

package gpusim

import (
	"sync"

	"github.com/ebitengine/purego"
)

// Fence makes AddressSanitizer forbid n bytes of a simulated GPU's memory, or allow them again, in
// a process that Checked has started. It is exact, except for up to 7 bytes at the end of forbidden
// memory.
func Fence(at uintptr, n int, forbidden bool) {
	on := int32(0)
	if forbidden {
		on = 1
	}
	driver().fence(at, uintptr(n), on)
}

// Downloads counts copies from simulated GPUs to the host.
type Downloads struct{ Number, Bytes, Largest uint64 }

// TakeDownloads returns the copies that this process has requested since the last call.
func TakeDownloads() (d Downloads) {
	driver().downloads(&d)
	return d
}

// functions holds the functions of the simulated driver that CUDA does not have.
type functions struct {
	fence     func(at, n uintptr, forbidden int32)
	downloads func(*Downloads)
}

var driver = sync.OnceValue(func() (f functions) {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW)
	if err != nil {
		panic(err) // the process was started with this library
	}
	purego.RegisterLibFunc(&f.fence, lib, "gpusim_fence")
	purego.RegisterLibFunc(&f.downloads, lib, "gpusim_downloads")
	return f
})
