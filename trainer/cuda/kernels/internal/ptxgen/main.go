// Command ptxgen compiles the kernels' sources to PTX. Run it through go generate; it
// does not decide what is compiled: every .cu file is.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compiler is of Debian 12's package clang-19.
const compiler = "clang-19"

// arguments are for compute capability 8.0, which later GPUs run too, in the oldest
// PTX that has it. Products and sums are contracted where a source says so: see gpu.h.
var arguments = []string{"-x", "cuda", "-std=c++17", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx70",
	"-nocudainc", "-nocudalib", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-S", "-o", "-"}

func main() {
	files, err := compile(".")
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join("ptx", name), text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// compile returns the PTX of all sources in a folder, by the name of its file.
func compile(dir string) (map[string][]byte, error) {
	sources, err := filepath.Glob(filepath.Join(dir, "*.cu"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, source := range sources {
		name := filepath.Base(source)
		c := exec.Command(compiler, append(arguments, name)...)
		c.Dir = dir
		var said bytes.Buffer
		c.Stderr = &said
		text, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("compile %s: %w\n%s", name, err, said.Bytes())
		}
		files[strings.TrimSuffix(name, ".cu")+".ptx"] = text
	}
	return files, nil
}
