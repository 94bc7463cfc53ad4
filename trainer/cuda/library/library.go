// Package library finds NVIDIA libraries on this machine and loads them at run time. cuBLASLt and
// NCCL are not part of the driver: they are in various directories, and often only in a Python
// environment.
//
// [Find] lists the possible locations of a library, best first. [Open] loads the first of them that
// can be loaded and returns its path, or the errors for all locations. [Version] returns the
// version of a library. The package requires neither a C compiler nor a CUDA toolkit at build time.
//
// It calls no other functions of a library, never unloads one (its threads may still run), and does
// not read environment variables itself: the caller of Find passes a function that does.
package library

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// NCCL is the name of the library for the dynamic linker.
const NCCL = "libnccl.so.2"

// newestCUBLASLt is the newest supported major version.
const newestCUBLASLt = 13

// CUBLASLt returns the names of cuBLASLt for the dynamic linker, newest first, for all versions
// that run with a driver of this CUDA major version. 0 means any version.
func CUBLASLt(cuda int) []string {
	if cuda == 0 {
		cuda = newestCUBLASLt
	}
	var names []string
	for v := min(cuda, newestCUBLASLt); v >= 11; v-- {
		names = append(names, fmt.Sprintf("libcublasLt.so.%d", v))
	}
	return names
}

// Library is a loaded library.
type Library struct {
	Handle uintptr // from dlopen
	Path   string  // path of its file
}

// Symbol returns the address of a function, if this version has it.
func (l *Library) Symbol(name string) (uintptr, bool) {
	return symbol(l.Handle, name)
}

// LoadError is the error if no location could be loaded.
type LoadError struct {
	Tried []string // locations
	Why   []string // error of the dynamic linker for each location
}

func (e *LoadError) Error() string {
	// An error for a name that is in no directory of the linker adds no information.
	var reasons []string
	for _, why := range e.Why {
		if !strings.Contains(why, "cannot open shared object file") {
			reasons = append(reasons, why)
		}
	}
	if len(reasons) == 0 {
		return "load " + strings.Join(e.Tried, ", ") + ": not found"
	}
	return "load " + e.Tried[0] + ": " + strings.Join(reasons, "; ")
}

// Open loads the first location that can be loaded. A location is a path, or a name for the dynamic
// linker. The error is a [*LoadError].
func Open(locations []string) (*Library, error) {
	failed := &LoadError{}
	for _, location := range locations {
		handle, err := load(location)
		if err != nil {
			failed.Tried = append(failed.Tried, location)
			failed.Why = append(failed.Why, err.Error())
			continue
		}
		return &Library{handle, file(location)}, nil
	}
	return nil, failed
}

// file returns the path of a library that the linker has just loaded.
func file(location string) string {
	if filepath.IsAbs(location) {
		return location
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return location
	}
	// The file may have a longer name than the requested symbolic link: libnccl.so.2.21.5.
	for line := range strings.Lines(string(maps)) {
		at := strings.IndexByte(line, '/')
		if at >= 0 && strings.HasPrefix(filepath.Base(line[at:]), location) {
			return strings.TrimSuffix(line[at:], "\n")
		}
	}
	return location
}
