// Package kernels contains the trainer's GPU kernels as PTX, which a driver of CUDA 11.0 or later
// compiles for any GPU of compute capability 8.0 or later. Some have a second version for compute
// capability 9.0 (Hopper) only, which requires a driver of CUDA 12.0.
//
// The sources are CUDA C++. `make kernels` compiles them with clang-19, without the CUDA toolkit.
// The resulting PTX is checked in, compressed with gzip, so building the program requires no CUDA
// compiler. `zcat` shows it. The same sources, compiled as C++ for the host, run in the simulator of
// tests/gpusim.
//
// Every kernel gives the same bits each time: no kernel uses atomic additions, and the order of
// each sum is fixed. The package does not load or launch kernels.
package kernels

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
)

//go:generate go run ./internal/ptxgen

//go:embed ptx
var texts embed.FS

const suffix = ".ptx.gz"

// Modules returns the names of the sources for all GPUs.
func Modules() []string { return modules("") }

// HopperModules returns the names of the sources for compute capability 9.0 only: PTX for sm_90a,
// which later GPUs cannot run. Their kernels have different names.
func HopperModules() []string { return modules("sm_90a/") }

func modules(dir string) []string {
	files, err := texts.ReadDir(path.Join("ptx", dir))
	if err != nil {
		panic(err) // they are embedded
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), suffix); ok {
			names = append(names, dir+name)
		}
	}
	return names
}

// Module returns the name of the source of a kernel. It panics if there is no such kernel.
func Module(kernel string) string {
	m := moduleOf()[kernel]
	if m == "" {
		panic(fmt.Sprintf("kernels: no kernel %q", kernel))
	}
	return m
}

var moduleOf = sync.OnceValue(func() map[string]string {
	of := map[string]string{}
	for _, m := range append(Modules(), HopperModules()...) {
		for _, kernel := range Names(m) {
			of[kernel] = m
		}
	}
	return of
})

// PTX returns the PTX of a source. It panics if there is no such source.
func PTX(module string) string {
	text, err := read("ptx/" + module + suffix)
	if err != nil {
		panic(err) // the name is in neither list
	}
	return string(text)
}

func read(name string) ([]byte, error) {
	f, err := texts.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Names returns the names of the kernels of a source.
func Names(module string) []string {
	var names []string
	for _, part := range strings.Split(PTX(module), ".entry ")[1:] {
		name, _, _ := strings.Cut(part, "(")
		names = append(names, name)
	}
	return names
}
