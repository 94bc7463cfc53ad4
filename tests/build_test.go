package tests

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// built makes the program as `make build` does, for an architecture.
func built(t *testing.T, arch, compiler string) string {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		missing(t, compiler+", which tests/setup.sh installs")
	}
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "make", "-C", "..", "build", "BIN="+dir)
	c.Env = append(os.Environ(), "GOARCH="+arch, "CC="+compiler)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "ddpbatch")
}

// missing leaves a test out where what it needs is not installed; CI has it all.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("CI needs %s", what)
	}
	t.Skipf("no %s", what)
}

var glibcVersion = regexp.MustCompile(`^GLIBC_2\.(\d+)(\.\d+)?$`)

// One binary for every node: it asks for no glibc newer than 2.17 (2013), and for no
// library of CUDA.
func TestProgramRunsWithOldGlibc(t *testing.T) {
	for arch, compiler := range map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"} {
		t.Run(arch, func(t *testing.T) {
			f, err := elf.Open(built(t, arch, compiler))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
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

// Where there is no driver the program with GPU support starts all the same, and says
// what is missing.
func TestProgramStartsWithoutDriver(t *testing.T) {
	program := built(t, runtime.GOARCH, "gcc")
	none := t.TempDir() // before the machine's own driver, if it has one
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
