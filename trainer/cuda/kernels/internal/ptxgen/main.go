// Command ptxgen compiles the sources of the kernels to PTX, and compresses it. It is run by go
// generate. It compiles every .cu file; the directory determines the GPUs. A file whose PTX is current
// does not change, whatever the version of the compressor.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compiler is the command of Debian 12's package clang-19.
const compiler = "clang-19"

// arguments are used for all sources. Contraction to FMA is off, see gpu.h.
var arguments = []string{"-x", "cuda", "-std=c++17", "--cuda-device-only", "-nocudainc", "-nocudalib", "-O3", "-ffp-contract=off",
	"-Wall", "-Wextra", "-Werror", "-S", "-o", "-"}

// targets contains the directories of sources with their targets, in the oldest PTX version that
// supports them: compute capability 8.0, which later GPUs run also, in the version of CUDA 11.0; and
// 9.0 with its specific instructions, in the version of CUDA 12.0.
var targets = []struct{ dir, arch, version string }{
	{".", "sm_80", "ptx70"},
	{"sm_90a", "sm_90a", "ptx80"},
}

func main() {
	files, err := compile(".")
	for name, text := range files {
		if err == nil {
			err = write(filepath.Join("ptx", name+".gz"), text)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes a compressed file, unless it has this text.
func write(name string, text []byte) error {
	if old, err := read(name); err == nil && bytes.Equal(old, text) {
		return nil
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, packed.Bytes(), 0o644)
}

// read reads a compressed file.
func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return io.ReadAll(r)
}

// compile returns the PTX of all sources below a directory by file name.
func compile(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, target := range targets {
		sources, err := filepath.Glob(filepath.Join(dir, target.dir, "*.cu"))
		if err != nil {
			return nil, err
		}
		for _, source := range sources {
			name := filepath.Join(target.dir, filepath.Base(source))
			c := exec.Command(compiler, append(slices.Clip(arguments), "--cuda-gpu-arch="+target.arch, "--cuda-feature=+"+target.version, name)...)
			c.Dir = dir
			var stderr bytes.Buffer
			c.Stderr = &stderr
			text, err := c.Output()
			if err != nil {
				return nil, fmt.Errorf("compile %s: %w\n%s", name, err, stderr.Bytes())
			}
			files[strings.TrimSuffix(name, ".cu")+".ptx"] = text
		}
	}
	return files, nil
}
