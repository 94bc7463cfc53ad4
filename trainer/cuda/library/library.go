// Package library finds NVIDIA's libraries on this machine and loads them while the
// program runs: those that do not come with the driver (cuBLASLt, NCCL) are in many
// places, and often only in a Python environment.
//
// [Find] lists where a library may be, best first; [Open] loads the first of them that
// can be loaded and says which file that was, or of every place why not; [Version] asks
// it how new it is. It needs neither C nor a toolkit at build time.
//
// It does not call a library's other functions, never unloads one (their threads may
// still run), and does not read the environment: lookup does.
package library

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// NCCL is the name under which the dynamic linker knows it.
const NCCL = "libnccl.so.2"

// newestCUBLASLt is the newest that is known.
const newestCUBLASLt = 13

// CUBLASLt are the names under which the dynamic linker knows cuBLASLt, the newest
// first, of all that run with a driver of this major version of CUDA; 0: of any.
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
	Handle uintptr // of dlopen
	Path   string  // its file
}

// Symbol is the address of a function, which this version may lack.
func (l *Library) Symbol(name string) (uintptr, bool) {
	return symbol(l.Handle, name)
}

// Failed is a library that could not be loaded from anywhere.
type Failed struct {
	Tried []string // places
	Why   []string // the dynamic linker's words for each
}

func (e *Failed) Error() string {
	// A name that no folder of the linker has says nothing that the others do not.
	var said []string
	for _, why := range e.Why {
		if !strings.Contains(why, "cannot open shared object file") {
			said = append(said, why)
		}
	}
	if len(said) == 0 {
		return "load " + strings.Join(e.Tried, ", ") + ": not found"
	}
	return "load " + e.Tried[0] + ": " + strings.Join(said, "; ")
}

// Open loads the first of the places that can be loaded: paths, or names that the
// dynamic linker looks for. The error is a [*Failed].
func Open(places []string) (*Library, error) {
	failed := &Failed{}
	for _, place := range places {
		handle, err := load(place)
		if err != nil {
			failed.Tried = append(failed.Tried, place)
			failed.Why = append(failed.Why, err.Error())
			continue
		}
		return &Library{handle, file(place)}, nil
	}
	return nil, failed
}

// file is where the linker found a library that it has just loaded.
func file(place string) string {
	if filepath.IsAbs(place) {
		return place
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return place
	}
	// The file may have another name than the link that was asked for: libnccl.so.2.21.5.
	for line := range strings.Lines(string(maps)) {
		at := strings.IndexByte(line, '/')
		if at >= 0 && strings.HasPrefix(filepath.Base(line[at:]), place) {
			return strings.TrimSuffix(line[at:], "\n")
		}
	}
	return place
}
