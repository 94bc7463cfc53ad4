//go:build linux && !static

package libmpi

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// load loads a library with global symbols, so that the plugins that it loads find them. Open
// MPI requires this.
func load(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// symbol returns the address of a symbol of a library.
func symbol(library uintptr, name string) (uintptr, bool) {
	p, err := purego.Dlsym(library, name)
	return p, err == nil && p != 0
}

// call calls a C function and returns its int result.
//
//go:uintptrescapes
func call(function uintptr, arguments ...uintptr) int32 {
	r, _, _ := purego.SyscallN(function, arguments...)
	return int32(r)
}

// callback returns an MPI_User_function that calls f. Its memory is never freed.
func callback(f func(in, inout unsafe.Pointer, count int)) uintptr {
	return purego.NewCallback(func(in, inout unsafe.Pointer, count *int32, _ unsafe.Pointer) {
		f(in, inout, int(*count))
	})
}
