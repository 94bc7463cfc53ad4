//go:build !linux

package libmpi

import (
	"fmt"
	"runtime"
	"unsafe"
)

func load(name string) (uintptr, error) {
	return 0, fmt.Errorf("%s: MPI libraries are loaded on Linux only, not on %s", name, runtime.GOOS)
}

func symbol(uintptr, string) (uintptr, bool) { return 0, false }

func call(uintptr, ...uintptr) int32 { panic("libmpi: nothing is loaded") }

func callback(func(in, inout unsafe.Pointer, count int)) uintptr { panic("libmpi: nothing is loaded") }
