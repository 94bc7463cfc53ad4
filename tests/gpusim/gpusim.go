// Package gpusim builds the GPU simulator: a libcuda.so.1 and a libcublasLt for
// machines without a GPU, which run the trainer's own kernels, compiled for this
// processor.
//
// It promises what a GPU's driver promises, and not more: streams are threads beside
// each other, so that an order that nobody asked for does not come by itself; memory
// is limited, and full of NaN when it is new; a block's threads really wait for each
// other at barriers, and blocks run in no order to rely on; host memory that is not
// pinned makes a copy wait. These variables of the environment set it up:
//
//	GPUSIM_DEVICES   number of GPUs (1), of which CUDA_VISIBLE_DEVICES may hide some
//	GPUSIM_MEMORY    bytes of each (4 GiB)
//	GPUSIM_FABRIC    folder that all processes see, by which the simulated NCCL connects them (/dev/shm)
//	GPUSIM_CAPABILITY compute capability (9.0)
//	GPUSIM_FAIL      failures, see driver/inject.cc
//	GPUSIM_EPILOGUES "none": cuBLASLt adds no bias and has no GELU
//
// [Checked] runs a test with AddressSanitizer built in, which knows each piece of memory.
//
// It is not a model of speed, and does not look for races within a block. What it
// shows of a kernel is that its source is right; the PTX is the same source through
// another back end of the same compiler, and only a GPU shows that.
package gpusim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Compiler is what the simulator is built with, of Debian's package clang-19.
const Compiler = "clang++-19"

// undefined is what stops a kernel that a GPU would let go on, or stop without a word:
// an address that is no multiple of its type's size, an index beyond its array.
const undefined = "-fsanitize=alignment,bounds,shift,null,integer-divide-by-zero,signed-integer-overflow,float-cast-overflow"

// library is a shared library of the simulator.
type library struct {
	file    string
	sources []string // patterns below the repository's root
	flags   []string
}

// one is the libraries of a GPU, and several those that connect GPUs.
var (
	one = []library{
		{"libcuda.so.1", []string{"tests/gpusim/driver/*.cc"}, []string{"-Wl,-soname,libcuda.so.1"}},
		{"libgpusim_kernels.so", []string{"tests/gpusim/machine/*.cc", "trainer/cuda/kernels/*.cu", "trainer/cuda/kernels/sm_90a/*.cu"},
			[]string{"-ffp-contract=off", "-I", "tests/gpusim/machine", undefined, "-fsanitize-trap=all"}},
		{"libcublasLt.so.12", []string{"tests/gpusim/blaslt/*.cc"}, []string{"-ffp-contract=off", "-Wl,-soname,libcublasLt.so.12"}},
	}
	several = []library{
		nccl("libnccl.so.2", 23007),
		nccl("libnccl-2.14.so.2", 21403), // without ncclCommSplit
		nccl("libnccl-2.12.so.2", 21212), // too old
	}
)

// nccl is the simulated NCCL of a version, with the functions that it had.
func nccl(file string, version int) library {
	return library{file, []string{"tests/gpusim/nccl/*.cc"},
		[]string{fmt.Sprint("-DSIM_NCCL_VERSION=", version), "-I", "nccl/libnccl/testdata", "-Wl,-soname," + file}}
}

// folder says, in a process that Main has started, where the libraries are.
const folder = "GPUSIM_LIBRARIES"

// realGPU is the variable with which tests are run on the machine's own GPU.
const realGPU = "DDPBATCH_TEST_GPU"

// Main is the TestMain of a package whose tests need a GPU: it builds the simulator
// and runs the tests in a process that finds it first. The dynamic linker reads
// LD_LIBRARY_PATH when a process starts, and never again. Without the compiler the
// tests are left out; with CI set that is a failure. With DDPBATCH_TEST_GPU set the
// machine's own GPU is used.
func Main(m *testing.M) {
	if os.Getenv(folder) != "" || os.Getenv(realGPU) != "" {
		os.Exit(m.Run())
	}
	if _, err := exec.LookPath(Compiler); err != nil && os.Getenv("CI") == "" {
		fmt.Printf("left out: the GPU simulator needs %s (Debian package clang-19)\n", Compiler)
		return
	}
	dir, err := Build(context.Background())
	if err == nil {
		c := exec.Command(os.Args[0], os.Args[1:]...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.Env = Environ(dir)
		err = c.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Require skips a test that only the simulator can do, such as a GPU that fails.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv(folder) == "" {
		t.Skip("left out: this takes the simulator, and " + realGPU + " is set")
	}
}

// Environ is this process's environment with the simulator in a folder found first, no GPU
// hidden, and more variables.
func Environ(dir string, more ...string) []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") })
	return append(own, append([]string{folder + "=" + dir, "LD_LIBRARY_PATH=" + dir}, more...)...)
}

// Again runs one test in a process of its own, with variables that the simulator reads
// when it starts, and returns what it printed. The test knows by os.Getenv that it is
// the one.
func Again(t testing.TB, test string, more ...string) (output string, err error) {
	t.Helper()
	return again(t, os.Getenv(folder), test, more...)
}

// again is Again with the simulator in a folder.
func again(t testing.TB, dir, test string, more ...string) (output string, err error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(test, "/", "$/^")+"$", "-test.v")
	c.Env = Environ(dir, more...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// Build builds the simulator below bin/, unless it is there already, and returns the
// folder of its libraries.
func Build(ctx context.Context) (string, error) {
	dir, err := build(ctx, "gpusim", slices.Concat(one, several))
	if err != nil {
		return "", fmt.Errorf("build the GPU simulator: %w", err)
	}
	return dir, nil
}

// build builds libraries in a folder of that name and their digest.
func build(ctx context.Context, name string, libraries []library) (string, error) {
	base, err := root()
	if err != nil {
		return "", err
	}
	digest, err := sum(base)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(base, "bin")
	dir := filepath.Join(bin, name+"-"+digest)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(bin, name+"-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for _, l := range libraries {
		if err := compile(ctx, base, filepath.Join(tmp, l.file), l); err != nil {
			return "", err
		}
	}
	err = os.Rename(tmp, dir)
	if _, there := os.Stat(dir); there == nil { // this process made it, or one that was faster
		err = nil
	}
	return dir, err
}

// root is the folder of go.mod: a test runs in its package's folder.
func root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("this is not inside the repository")
		}
	}
	return "", err
}

// compile makes a library of sources below the folder base.
func compile(ctx context.Context, base, file string, l library) error {
	sources, err := match(base, l.sources)
	if err != nil {
		return err
	}
	args := append([]string{"-x", "c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread", "-o", file}, l.flags...)
	cmd := exec.CommandContext(ctx, Compiler, append(append(args, sources...), "-ldl")...)
	cmd.Dir = base
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", l.file, err, out)
	}
	return nil
}

func match(base string, patterns []string) ([]string, error) {
	var all []string
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join(base, p))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no file is named %q", p)
		}
		for _, f := range files {
			rel, err := filepath.Rel(base, f)
			if err != nil {
				return nil, err
			}
			all = append(all, rel)
		}
	}
	return all, nil
}

// sum is a digest of everything that the libraries are made of.
func sum(base string) (string, error) {
	h := sha256.New()
	var files []string
	for _, dir := range []string{"tests/gpusim", "trainer/cuda/kernels", "nccl/libnccl/testdata"} {
		err := filepath.WalkDir(filepath.Join(base, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && slices.Contains([]string{".cc", ".cu", ".h", ".go"}, filepath.Ext(path)) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", f, len(text))
		h.Write(text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}
