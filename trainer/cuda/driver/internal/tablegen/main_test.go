package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFilesAreGeneratedForABuild checks that cgo.sh generates the files before it runs a command if
// they are missing or older than driver.tbl, and leaves them unchanged otherwise.
func TestFilesAreGeneratedForABuild(t *testing.T) {
	root, copied := "../../../../..", t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "trainer/cuda/cgo.sh",
		"trainer/cuda/driver/driver.tbl", "trainer/cuda/driver/include/cuda.h",
		"trainer/cuda/driver/internal/tablegen/main.go", "trainer/cuda/driver/internal/tablegen/loader.c.tmpl"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(copied, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(copied, "internal"), os.DirFS(filepath.Join(root, "internal"))); err != nil {
		t.Fatal(err)
	}
	driver := filepath.Join(copied, "trainer/cuda/driver")
	// build runs cgo.sh and returns loader.c. A cross build generates the files on this machine.
	build := func() string {
		t.Helper()
		c := exec.Command("sh", filepath.Join(copied, "trainer/cuda/cgo.sh"), "ls", filepath.Join(driver, "include/cuda_api.h"), filepath.Join(driver, "lib/libcuda.a"))
		c.Env = append(os.Environ(), "GOARCH=riscv64", "GOOS=plan9", "CGO_ENABLED=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(driver, "loader.c"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const added = "cuAdded"
	if text := build(); !strings.Contains(text, "cuMemAlloc") || strings.Contains(text, added) {
		t.Errorf("loader.c is\n%s", text)
	}
	generated := filepath.Join(driver, "loader.c")
	if err := os.WriteFile(generated, []byte("edited"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text := build(); text != "edited" {
		t.Errorf("a current loader.c was replaced by\n%s", text)
	}
	table := filepath.Join(driver, "driver.tbl")
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(table, append(text, added+" | = |\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(generated, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if text := build(); !strings.Contains(text, added) {
		t.Errorf("a stale loader.c remains:\n%s", text)
	}
}

// TestTableErrorsHaveLine checks that errors in driver.tbl name the line.
func TestTableErrorsHaveLine(t *testing.T) {
	for table, want := range map[string]string{
		"# x\ncuA | =\n":             "driver.tbl:2: 2 fields",
		"cuA | = |\ncuA | = | int a": "driver.tbl:2: duplicate function cuA",
	} {
		if _, err := files(table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", table, err, want)
		}
	}
}
