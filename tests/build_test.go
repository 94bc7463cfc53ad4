package tests

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// buildProgram builds the program with `make build` for an architecture.
func buildProgram(t *testing.T, arch, compiler string) string {
	t.Helper()
	return makeTarget(t, "build", arch, compiler)
}

// makeTarget builds the program with a target of the Makefile.
func makeTarget(t *testing.T, target, arch, compiler string) string {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		missing(t, compiler+", which tests/setup.sh installs")
	}
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "make", "-C", "..", target, "BIN="+dir)
	c.Env = append(os.Environ(), "GOARCH="+arch, "CC="+compiler)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "ddpbatch")
}

// missing skips a test whose requirement is not installed. In CI it fails the test, because
// everything is installed there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("CI needs %s", what)
	}
	t.Skipf("no %s", what)
}

var glibcVersion = regexp.MustCompile(`^GLIBC_2\.(\d+)(\.\d+)?$`)

// TestProgramRunsWithOldGlibc checks that one binary runs on all nodes: it needs at most glibc 2.17
// (2013), and it is not linked to a CUDA library.
func TestProgramRunsWithOldGlibc(t *testing.T) {
	for arch, compiler := range map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"} {
		t.Run(arch, func(t *testing.T) {
			f, err := elf.Open(buildProgram(t, arch, compiler))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			checkHardened(t, f)
			symbols, err := f.ImportedSymbols()
			if err != nil {
				t.Fatal(err)
			}
			if len(symbols) < 20 {
				t.Errorf("only %d symbols are imported: is this the program with the tag cuda?", len(symbols))
			}
			for _, s := range symbols {
				m := glibcVersion.FindStringSubmatch(s.Version)
				if m == nil {
					t.Errorf("%s asks for %q", s.Name, s.Version)
				} else if minor, _ := strconv.Atoi(m[1]); minor > 17 {
					t.Errorf("%s asks for %s: name it in trainer/cuda/glibc.sh", s.Name, s.Version)
				}
			}
			libraries, err := f.ImportedLibraries()
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range libraries {
				if !strings.HasPrefix(l, "libc.so") && !strings.HasPrefix(l, "libdl.so") && !strings.HasPrefix(l, "libpthread.so") && !strings.HasPrefix(l, "ld-linux") {
					t.Errorf("it needs %s", l)
				}
			}
		})
	}
}

// TestProgramWithoutGPUSupportIsHardened checks that the program without cgo is hardened.
func TestProgramWithoutGPUSupportIsHardened(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			f, err := elf.Open(makeTarget(t, "build-cpu", arch, "gcc"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			checkHardened(t, f)
		})
	}
}

// checkHardened checks that a program is position-independent, that its relocation tables are
// read-only after the start, and that its stack is not executable.
func checkHardened(t *testing.T, f *elf.File) {
	t.Helper()
	if f.Type != elf.ET_DYN {
		t.Errorf("the type is %v, want a position-independent program", f.Type)
	}
	checkMemory(t, f)
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_GNU_RELRO && p.Memsz > 0 }) {
		t.Error("no part is read-only after relocation (RELRO)")
	}
	flags, err := f.DynValue(elf.DT_FLAGS)
	if err != nil || len(flags) != 1 || elf.DynFlag(flags[0])&elf.DF_BIND_NOW == 0 {
		t.Errorf("DT_FLAGS is %x (%v), want BIND_NOW", flags, err)
	}
	flags, err = f.DynValue(elf.DT_FLAGS_1)
	if want := elf.DF_1_NOW | elf.DF_1_PIE; err != nil || len(flags) != 1 || elf.DynFlag1(flags[0])&want != want {
		t.Errorf("DT_FLAGS_1 is %x (%v), want NOW and PIE", flags, err)
	}
	if relocations, err := f.DynValue(elf.DT_TEXTREL); err != nil || len(relocations) > 0 {
		t.Errorf("the loader would have to write to the code (%v, %v)", relocations, err)
	}
}

// checkMemory checks that no memory of a program is both writable and executable.
func checkMemory(t *testing.T, f *elf.File) {
	t.Helper()
	stack := false
	for _, p := range f.Progs {
		stack = stack || p.Type == elf.PT_GNU_STACK
		if p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
			t.Errorf("%v is writable and executable", p.Type)
		}
	}
	if !stack {
		t.Error("nothing says that the stack is not executable")
	}
}

// TestProgramStartsWithoutDriver checks that the program with GPU support starts without a GPU
// driver and reports what is missing.
func TestProgramStartsWithoutDriver(t *testing.T) {
	program := buildProgram(t, runtime.GOARCH, "gcc")
	none := t.TempDir() // precedes the machine's own driver in the search path
	if err := os.WriteFile(filepath.Join(none, "libcuda.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "doctor")
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+none)
	out, err := c.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		t.Fatalf("%v\n%s", err, ended.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "load the CUDA driver libcuda.so.1: ") {
		t.Errorf("got\n%s", out)
	}
}
