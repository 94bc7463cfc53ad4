//go:build cuda

package driver_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// library is set to the directory of the fake libcuda.so.1 in the process that uses it.
const library = "DDPBATCH_TEST_LIBCUDA"

// TestMain runs the tests again in a process that loads the fake driver, testdata/fakecuda.c: the
// dynamic linker reads LD_LIBRARY_PATH only when a process starts.
func TestMain(m *testing.M) {
	if os.Getenv(library) != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "fakecuda")
	if err == nil {
		err = run(exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"), "testdata/fakecuda.c"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the stand-in for libcuda.so.1:", err)
		os.Exit(1)
	}
	err = run(again(dir, os.Args[1:]...))
	os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(c *exec.Cmd) error {
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// again returns a command that runs this program with libcuda.so.1 from dir.
func again(dir string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), library+"="+dir, "LD_LIBRARY_PATH="+dir)
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bound opens GPU 0 and binds it to the test's goroutine.
func bound(t testing.TB) *driver.GPU {
	t.Helper()
	g, err := driver.Open(0)
	must(t, err)
	unbind, err := g.Bind()
	must(t, err)
	t.Cleanup(func() {
		unbind()
		must(t, g.Close())
	})
	return g
}

func newStream(t testing.TB) driver.Stream {
	t.Helper()
	s, err := driver.NewStream(0)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// upload copies values to the GPU.
func upload(t testing.TB, s driver.Stream, v ...float32) driver.Ptr {
	t.Helper()
	n := int64(4 * len(v))
	at, err := driver.Alloc(n)
	must(t, err)
	t.Cleanup(func() { must(t, driver.Free(at)) })
	h, err := driver.AllocHost(n)
	must(t, err)
	copy(driver.View[float32](h), v)
	must(t, s.Upload(at, h))
	must(t, s.Synchronize())
	must(t, h.Free())
	return at
}

func expect(t testing.TB, s driver.Stream, at driver.Ptr, want ...float32) {
	t.Helper()
	h, err := driver.AllocHost(int64(4 * len(want)))
	must(t, err)
	must(t, s.Download(h, at))
	must(t, s.Synchronize())
	for i, got := range driver.View[float32](h) {
		if got != want[i] {
			t.Errorf("got %v, want %v", driver.View[float32](h), want)
			break
		}
	}
	must(t, h.Free())
}

func kernel(t testing.TB, name string) *driver.Function {
	t.Helper()
	m, err := driver.LoadPTX("kernels", ".version 8.0")
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	f, err := m.Function(name)
	must(t, err)
	return f
}
