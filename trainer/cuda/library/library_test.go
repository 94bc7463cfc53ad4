package library

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	strange := filepath.Join(root, "a[b]*c")
	file := func(parts ...string) string {
		path := filepath.Join(append([]string{root}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	conda12 := file("conda/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12")
	conda9 := file("conda/lib/python3.09/site-packages/nvidia/cublas/lib/libcublasLt.so.12")
	home := file("a[b]*c/lib64/libcublasLt.so.12")
	newer := file("a[b]*c/lib64/libcublasLt.so.13")
	path := file("extra/nvidia/cu13/lib/libcublasLt.so.13")
	if err := os.MkdirAll(filepath.Join(root, "conda/lib/libcublasLt.so.13"), 0o755); err != nil { // a directory is not a library
		t.Fatal(err)
	}
	env := map[string]string{"CUDA_HOME": strange, "CONDA_PREFIX": filepath.Join(root, "conda"), "VIRTUAL_ENV": "relative", "PYTHONPATH": ":" + filepath.Join(root, "extra")}
	got := Find(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, CUBLASLt(0)...)
	got = slices.DeleteFunc(got, func(p string) bool { return filepath.IsAbs(p) && !strings.HasPrefix(p, root) }) // of this machine
	want := append(CUBLASLt(0), newer, home, conda12, conda9, path)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestCUBLASLt(t *testing.T) {
	for cuda, want := range map[int]string{0: "13 12 11", 11: "11", 12: "12 11", 13: "13 12 11", 14: "13 12 11"} {
		if got := strings.ReplaceAll(strings.Join(CUBLASLt(cuda), " "), "libcublasLt.so.", ""); got != want {
			t.Errorf("CUDA %d: got %s, want %s", cuda, got, want)
		}
	}
}

// build compiles a library.
func build(t *testing.T, name, code string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	c := exec.Command("gcc", "-shared", "-fPIC", "-o", path, "-x", "c", "-")
	c.Stdin = strings.NewReader(code)
	if out, err := c.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		t.Skip("no gcc")
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func TestOpenAndVersion(t *testing.T) {
	for name, c := range map[string]struct{ code, version, err string }{
		"libnccl.so.2":      {"int ncclGetVersion(int *v) { *v = 22105; return 0; }", "2.21.5", ""},
		"libcublasLt.so.12": {"unsigned long cublasLtGetVersion(void) { return 120804; }", "12.8.4", ""},
		"libcublasLt.so.11": {"unsigned long cublasLtGetVersion(void) { return 11605; }", "11.6.5", ""},
		"libbroken.so":      {"int ncclGetVersion(int *v) { return v ? 3 : 0; }", "", "ncclGetVersion returned 3"},
		"libother.so":       {"int other;", "", "it is neither cuBLASLt nor NCCL"},
	} {
		t.Run(name, func(t *testing.T) {
			path := build(t, name, c.code)
			l, err := Open([]string{"libddpbatch-none.so", path})
			if err != nil {
				t.Fatal(err)
			}
			if l.Path != path {
				t.Errorf("path %q, want %q", l.Path, path)
			}
			version, err := Version(l)
			if version != c.version || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v; want %q, %q", version, err, c.version, c.err)
			}
		})
	}
}

// Open returns the path of a library that the dynamic linker finds by name.
func TestOpenByName(t *testing.T) {
	l, err := Open([]string{"libc.so.6"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.Path); err != nil || filepath.Base(l.Path) == l.Path {
		t.Errorf("path %q: %v", l.Path, err)
	}
}

func TestOpenFails(t *testing.T) {
	if _, err := Open([]string{"libddpbatch-a.so", "libddpbatch-b.so"}); err == nil || err.Error() != "load libddpbatch-a.so, libddpbatch-b.so: not found" {
		t.Errorf("got %v", err)
	}
	broken := filepath.Join(t.TempDir(), "libnccl.so.2")
	if err := os.WriteFile(broken, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open([]string{"libddpbatch-a.so", broken})
	if err == nil || !strings.Contains(err.Error(), broken) || !strings.Contains(err.Error(), "file too short") && !strings.Contains(err.Error(), "invalid ELF header") {
		t.Errorf("got %v", err)
	}
}
