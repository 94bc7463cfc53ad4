// Package kernels has the trainer's GPU kernels, as PTX that a driver of CUDA 11.0 or
// later compiles for any GPU of compute capability 8.0 and later.
//
// The sources are CUDA C. `make kernels` compiles them by clang-19, without the CUDA
// toolkit, and the result is kept beside them: whoever builds the program needs no
// compiler. The same sources, compiled as C++, run in the simulator of tests/gpusim.
//
// It promises that every kernel gives the same bits each time: nothing is added
// atomically, and each sum has one order. It does not load or launch them.
package kernels

import (
	"embed"
	"strings"
)

//go:generate go run ./internal/ptxgen

//go:embed ptx
var texts embed.FS

// Modules are the names of the sources.
func Modules() []string {
	files, err := texts.ReadDir("ptx")
	if err != nil {
		panic(err) // they are embedded
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".ptx"))
	}
	return names
}

// PTX is the compiled text of a source.
func PTX(module string) string {
	text, err := texts.ReadFile("ptx/" + module + ".ptx")
	if err != nil {
		panic(err) // a name that is not in Modules
	}
	return string(text)
}

// Names are the kernels of a source.
func Names(module string) []string {
	var names []string
	for _, part := range strings.Split(PTX(module), ".entry ")[1:] {
		name, _, _ := strings.Cut(part, "(")
		names = append(names, name)
	}
	return names
}
