// Package gpusim builds the GPU simulator: a libcuda.so.1, a libcublasLt, and several versions of
// libnccl, for machines without a GPU. libcuda.so.1 runs the trainer's own kernels, compiled for
// this CPU.
//
// The simulator guarantees only what a GPU's driver guarantees:
//   - Streams are concurrent threads, so a missing dependency shows.
//   - Memory is limited, and new memory is full of NaN.
//   - The threads of a block wait for each other at barriers. Blocks run in no fixed order.
//   - A copy waits if its host memory is not pinned.
//
// These environment variables configure it:
//
//	GPUSIM_DEVICES    number of GPUs (default: 1); CUDA_VISIBLE_DEVICES may hide some
//	GPUSIM_MEMORY     bytes of each GPU (default: 4 GiB)
//	GPUSIM_FABRIC     directory that all processes share, for connections of the simulated NCCL (default: /dev/shm)
//	GPUSIM_CAPABILITY compute capability (default: 9.0)
//	GPUSIM_FAIL       injected failures, see driver/inject.cc
//	GPUSIM_EPILOGUES  "none": cuBLASLt adds no bias, has no GELU, and sums no gradient of a bias;
//	                  "half": algorithms that sum gradients of biases use half of the GPU
//	GPUSIM_ALGORITHMS "differ": cuBLASLt's second algorithm sums in descending order
//	GPUSIM_MUTATION   replacement in the PTX that the interpreter runs, see driver/module.cc
//	GPUSIM_KERNELS    "ptx": an interpreter runs the PTX; "compare": also compare it with the host's code
//
// [Checked] runs a test under AddressSanitizer, which checks each allocation.
//
// With GPUSIM_KERNELS, an interpreter runs the PTX that the program contains, and compares the results
// with the sources' bit for bit. It detects races within a block, accesses outside of an allocation,
// and use of memory and registers that nothing has written. The context then fails with CUDA's error.
//
// The simulator does not model speed. It does not show what ptxas makes of the PTX, the last bits of
// ex2.approx, and the order of sums in tensor cores; only a GPU can.
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

	"golang.org/x/sys/cpu"
)

// Compiler is the compiler that builds the simulator, from Debian's package clang-19.
const Compiler = "clang++-19"

// undefined lists the checks that stop a kernel on an error that a GPU would ignore or not explain:
// an address that is not a multiple of its type's size, or an index out of bounds.
const undefined = "-fsanitize=alignment,bounds,shift,null,integer-divide-by-zero,signed-integer-overflow,float-cast-overflow"

// library is a shared library of the simulator.
type library struct {
	file    string
	sources []string // patterns below the repository's root
	flags   []string
}

// one lists the libraries of a single GPU; several lists the libraries that connect GPUs.
var (
	one = []library{
		{"libcuda.so.1", []string{"tests/gpusim/driver/*.cc"}, []string{"-Wl,-soname,libcuda.so.1"}},
		{"libgpusim_kernels.so", []string{"tests/gpusim/machine/*.cc", "trainer/cuda/kernels/*.cu", "trainer/cuda/kernels/sm_90a/*.cu"},
			slices.Concat([]string{"-ffp-contract=off", "-I", "tests/gpusim/machine", undefined, "-fsanitize-trap=all"}, fma)},
		{"libcublasLt.so.12", []string{"tests/gpusim/blaslt/*.cc"}, []string{"-ffp-contract=off", "-Wl,-soname,libcublasLt.so.12"}},
	}
	interpreter = library{"libgpusim_ptx.so", []string{"tests/gpusim/ptx/*.cc"}, slices.Concat([]string{"-ffp-contract=off", "-D_GLIBCXX_ASSERTIONS"}, fma)}
	several     = []library{
		nccl("libnccl.so.2", 23007),
		nccl("libnccl-2.14.so.2", 21403), // without ncclCommSplit
		nccl("libnccl-2.12.so.2", 21212), // too old
	}
)

// fma makes the compiler use this CPU's FMA instruction for fma.rn.f32. Without it, a
// function of the C library computes the same bits, but slowly.
var fma = func() []string {
	if cpu.X86.HasFMA && cpu.X86.HasAVX {
		return []string{"-mfma"}
	}
	return nil
}()

// nccl returns the simulated NCCL of a version, with the functions that this version had.
func nccl(file string, version int) library {
	return library{file, []string{"tests/gpusim/nccl/*.cc"},
		[]string{fmt.Sprint("-DSIM_NCCL_VERSION=", version), "-I", "nccl/libnccl/testdata", "-Wl,-soname," + file}}
}

// folder is the directory of the libraries in a process that Main has started.
const folder = "GPUSIM_LIBRARIES"

// realGPU is the variable that runs tests on the machine's own GPU.
const realGPU = "DDPBATCH_TEST_GPU"

// Main implements TestMain of a package whose tests need a GPU. It builds the simulator and runs the
// tests in a new process that finds the simulator first, because the dynamic linker reads
// LD_LIBRARY_PATH only at process start. Without the compiler, the tests are skipped; with CI set,
// that is a failure. With DDPBATCH_TEST_GPU set, the tests use the machine's own GPU.
func Main(m *testing.M) {
	if os.Getenv(folder) != "" || os.Getenv(realGPU) != "" {
		os.Exit(m.Run())
	}
	if _, err := exec.LookPath(Compiler); err != nil && os.Getenv("CI") == "" {
		fmt.Printf("skipped: the GPU simulator needs %s (Debian package clang-19)\n", Compiler)
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

// Require skips a test that needs the simulator, for example to make a GPU fail.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv(folder) == "" {
		t.Skip("skipped: this test requires the simulator, and " + realGPU + " is set")
	}
}

// Environ returns the environment of this process with more variables, with all GPUs visible and
// the simulator in a directory found first.
func Environ(dir string, more ...string) []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") })
	return append(own, append([]string{folder + "=" + dir, "LD_LIBRARY_PATH=" + dir}, more...)...)
}

// Again runs one test in a new process, with variables that the simulator reads at start, and
// returns its output. The test recognizes the new process with os.Getenv.
func Again(t testing.TB, test string, more ...string) (output string, err error) {
	t.Helper()
	return again(t, os.Getenv(folder), test, more...)
}

// again runs a test like [Again], with the simulator in a directory.
func again(t testing.TB, dir, test string, more ...string) (output string, err error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(test, "/", "$/^")+"$", "-test.v")
	c.Env = Environ(dir, more...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// Build builds the simulator below bin/, unless it exists, and returns the directory of its
// libraries.
func Build(ctx context.Context) (string, error) {
	dir, err := build(ctx, "gpusim", slices.Concat(one, several, []library{interpreter}))
	if err != nil {
		return "", fmt.Errorf("build the GPU simulator: %w", err)
	}
	return dir, nil
}

// build builds libraries in a directory with this name and their digest.
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
	if _, there := os.Stat(dir); there == nil { // by this process or a concurrent one
		err = nil
	}
	return dir, err
}

// root returns the directory of go.mod. A test runs in the directory of its package.
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

// compile builds a library from sources below the directory base.
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
			return nil, fmt.Errorf("no file matches %q", p)
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

// sum returns a digest of all inputs of the libraries.
func sum(base string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, fma)
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
