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
	driver().fence(at, uintptr(n), on)
}

// Downloads are copies from simulated GPUs to the host.
type Downloads struct{ Number, Bytes, Largest uint64 }

// TakeDownloads tells what copies this process has asked for since it was called last.
func TakeDownloads() (d Downloads) {
	driver().downloads(&d)
	return d
}

// functions are those that the simulated driver has besides CUDA's.
type functions struct {
	fence     func(at, n uintptr, forbidden int32)
	downloads func(*Downloads)
}

var driver = sync.OnceValue(func() (f functions) {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW)
	if err != nil {
		panic(err) // the process was started with it
	}
	purego.RegisterLibFunc(&f.fence, lib, "gpusim_fence")
	purego.RegisterLibFunc(&f.downloads, lib, "gpusim_downloads")
	return f
})
