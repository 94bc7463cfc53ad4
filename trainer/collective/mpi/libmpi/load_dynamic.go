//go:build linux && !static

package libmpi

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// load opens a library so that the parts which it opens itself find its symbols, as
// Open MPI's do.
func load(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// symbol is the address of a name in a library.
func symbol(library uintptr, name string) (uintptr, bool) {
	p, err := purego.Dlsym(library, name)
	return p, err == nil && p != 0
}

// call calls a function of C and returns its int.
//
//go:uintptrescapes
func call(function uintptr, arguments ...uintptr) int32 {
	r, _, _ := purego.SyscallN(function, arguments...)
	return int32(r)
}

// callback makes an MPI_User_function of f. Its memory is never freed.
func callback(f func(in, inout unsafe.Pointer, count int)) uintptr {
	return purego.NewCallback(func(in, inout unsafe.Pointer, count *int32, _ unsafe.Pointer) {
		f(in, inout, int(*count))
	})
}
