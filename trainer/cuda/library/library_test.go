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

// TestFind checks the order in which libraries are searched: names, CUDA_HOME, Conda, and
// PYTHONPATH. Relative paths and directories are skipped.
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
	conda9 := file("conda/lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12")
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

// TestFindNextToPython checks that Find finds the wheels of CUDA 12 and 13 in the environment of the
// python3 in PATH, which no other variable names.
func TestFindNextToPython(t *testing.T) {
	const packages = "lib/python3.12/site-packages/nvidia/"
	for _, c := range []struct {
		name     string
		files    []string          // below the root
		links    map[string]string // below the root, to a path below the root
		path     string            // directories below the root, or relative ones after "./"
		library  []string
		public   string   // directory in which every user can create files
		expected []string // below the root
	}{
		{name: "CUDA 12", files: []string{"venv/bin/python3", "venv/" + packages + "cublas/lib/libcublasLt.so.12"},
			path: "venv/bin", library: CUBLASLt(12), expected: []string{"venv/" + packages + "cublas/lib/libcublasLt.so.12"}},
		{name: "CUDA 13", files: []string{"venv/bin/python3", "venv/" + packages + "cu13/lib/libcublasLt.so.13"},
			path: "venv/bin", library: CUBLASLt(13), expected: []string{"venv/" + packages + "cu13/lib/libcublasLt.so.13"}},
		{name: "both, and a driver of CUDA 12", files: []string{"venv/bin/python3", "venv/" + packages + "cu13/lib/libcublasLt.so.13", "venv/" + packages + "cublas/lib/libcublasLt.so.12"},
			path: "venv/bin", library: CUBLASLt(12), expected: []string{"venv/" + packages + "cublas/lib/libcublasLt.so.12"}},
		{name: "NCCL", files: []string{"venv/bin/python3", "venv/" + packages + "nccl/lib/libnccl.so.2"},
			path: "venv/bin", library: []string{NCCL}, expected: []string{"venv/" + packages + "nccl/lib/libnccl.so.2"}},
		{name: "lib64", files: []string{"venv/bin/python3", "venv/lib64/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"},
			path: "venv/bin", library: []string{NCCL}, expected: []string{"venv/lib64/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"}},
		{name: "conda without its variables", files: []string{"conda/bin/python3", "conda/lib/libnccl.so.2"},
			path: "conda/bin", library: []string{NCCL}, expected: []string{"conda/lib/libnccl.so.2"}},
		{name: "virtual environment before its installation", files: []string{"opt/python/bin/python3.12", "venv/" + packages + "nccl/lib/libnccl.so.2", "opt/python/" + packages + "nccl/lib/libnccl.so.2"},
			links: map[string]string{"venv/bin/python3": "opt/python/bin/python3.12"},
			path:  "venv/bin", library: []string{NCCL}, expected: []string{"venv/" + packages + "nccl/lib/libnccl.so.2", "opt/python/" + packages + "nccl/lib/libnccl.so.2"}},
		{name: "first python3 in PATH", files: []string{"a/bin/python3", "b/bin/python3", "b/" + packages + "nccl/lib/libnccl.so.2"},
			path: "a/bin:b/bin", library: []string{NCCL}},
		{name: "relative directory in PATH", files: []string{"venv/bin/python3", "venv/" + packages + "nccl/lib/libnccl.so.2"},
			path: "./venv/bin", library: []string{NCCL}},
		{name: "public directory", files: []string{"tmp/bin/python3", "tmp/" + packages + "nccl/lib/libnccl.so.2", "tmp/lib/libnccl.so.2"},
			path: "tmp/bin", library: []string{NCCL}, public: "tmp"},
		{name: "no python3", files: []string{"venv/" + packages + "nccl/lib/libnccl.so.2"}, path: "venv/bin", library: []string{NCCL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			t.Chdir(root)
			for _, f := range c.files {
				if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, nil, 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			for link, to := range c.links {
				if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(filepath.Join(root, to), link)); err != nil {
					t.Fatal(err)
				}
			}
			if c.public != "" {
				if err := os.Chmod(c.public, 0o777|os.ModeSticky); err != nil {
					t.Fatal(err)
				}
			}
			var path []string
			for _, dir := range filepath.SplitList(c.path) {
				if !strings.HasPrefix(dir, "./") {
					dir = filepath.Join(root, dir)
				}
				path = append(path, dir)
			}
			env := map[string]string{"PATH": strings.Join(path, ":")}
			var got []string
			for _, p := range Find(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, c.library...) {
				if rel, err := filepath.Rel(root, p); filepath.IsAbs(p) && err == nil && !strings.HasPrefix(rel, "..") { // not of this machine
					got = append(got, rel)
				}
			}
			if !slices.Equal(got, c.expected) {
				t.Errorf("got  %q\nwant %q", got, c.expected)
			}
		})
	}
}

// TestFindInPublicDirectories checks that no variable leads to libraries below a directory in which every
// user can create files, such as HOME in a container with HOME=/tmp.
func TestFindInPublicDirectories(t *testing.T) {
	const packages = "lib/python3.12/site-packages/nvidia/nccl/lib"
	for variable, tail := range map[string]string{"CUDA_HOME": "lib64", "CUDA_PATH": "lib", "VIRTUAL_ENV": packages, "CONDA_PREFIX": "lib",
		"PYTHONPATH": "nvidia/nccl/lib", "HOME": ".local/" + packages} {
		dir := t.TempDir()
		file := filepath.Join(dir, tail, NCCL)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o755)); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []os.FileMode{0o755, 0o777 | os.ModeSticky} {
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			found := Find(func(name string) (string, bool) { return dir, name == variable }, NCCL)
			if got, want := slices.Contains(found, file), mode == 0o755; got != want {
				t.Errorf("%s, mode %v: found %v, want %v", variable, mode, got, want)
			}
		}
	}
}

// TestCUBLASLt checks that the newest library that the CUDA version supports is tried first.
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

// TestOpenAndVersion checks that Open skips missing libraries, and that Version formats the
// version codes of NCCL and cuBLASLt.
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

// TestOpenByName checks that Open returns the path of a library that the dynamic linker finds by
// name.
func TestOpenByName(t *testing.T) {
	l, err := Open([]string{"libc.so.6"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.Path); err != nil || filepath.Base(l.Path) == l.Path {
		t.Errorf("path %q: %v", l.Path, err)
	}
}

// TestOpenFails checks that the error lists missing libraries and has the cause for a corrupt one.
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
