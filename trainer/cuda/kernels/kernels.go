// Package kernels has the trainer's GPU kernels, as PTX that a driver of CUDA 11.0 or
// later compiles for any GPU of compute capability 8.0 and later. Some have a second form
// for compute capability 9.0 alone (Hopper), which takes a driver of CUDA 12.0.
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
	"path"
	"strings"
)

//go:generate go run ./internal/ptxgen

//go:embed ptx
var texts embed.FS

// Modules are the names of the sources for every GPU.
func Modules() []string { return modules("") }

// HopperModules are those for compute capability 9.0, and no other: PTX for sm_90a, which
// later GPUs cannot run. Their kernels have names of their own.
func HopperModules() []string { return modules("sm_90a/") }

func modules(folder string) []string {
	files, err := texts.ReadDir(path.Join("ptx", folder))
	if err != nil {
		panic(err) // they are embedded
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".ptx"); ok {
			names = append(names, folder+name)
		}
	}
	return names
}

// PTX is the compiled text of a source.
func PTX(module string) string {
	text, err := texts.ReadFile("ptx/" + module + ".ptx")
	if err != nil {
		panic(err) // a name that is in neither list
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
