//go:build !linux || static

package libmpi

import (
	"fmt"
	"unsafe"
)

func load(name string) (uintptr, error) {
	return 0, fmt.Errorf("load %s: this program is statically linked or not built for Linux", name)
}

func symbol(uintptr, string) (uintptr, bool) { return 0, false }

func call(uintptr, ...uintptr) int32 { panic("libmpi: nothing is loaded") }

func callback(func(in, inout unsafe.Pointer, count int)) uintptr { panic("libmpi: nothing is loaded") }
