//go:build !static

package library

import "github.com/ebitengine/purego"

func load(location string) (handle uintptr, err error) {
	return purego.Dlopen(location, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func symbol(handle uintptr, name string) (uintptr, bool) {
	p, err := purego.Dlsym(handle, name)
	return p, err == nil && p != 0
}

// callSize calls a C function without parameters that returns a size_t.
func callSize(function uintptr) uintptr {
	v, _, _ := purego.SyscallN(function)
	return v
}

// callInto calls a C function that stores an int at its argument and returns an int.
func callInto(function uintptr, into *int32) int32 {
	var call func(*int32) int32
	purego.RegisterFunc(&call, function)
	return call(into)
}
