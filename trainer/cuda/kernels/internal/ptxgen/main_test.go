package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestCheckedInFilesAreGenerated checks that the PTX matches the sources of the kernels.
func TestCheckedInFilesAreGenerated(t *testing.T) {
	if _, err := exec.LookPath(compiler); err != nil && os.Getenv("CI") == "" {
		t.Skipf("left out: whether the kernels' PTX is that of their sources; it takes %s", compiler)
	}
	const dir = "../.."
	files, err := compile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if committed := committed(t); len(committed) != len(files) {
		t.Errorf("%d files for %d sources", len(committed), len(files))
	}
	for name, want := range files {
		got, err := read(filepath.Join(dir, "ptx", name+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what ptxgen writes: run make kernels", name)
		}
	}
}

// committed returns the PTX files that are checked in, for every target.
func committed(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("../../ptx", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil || len(all) < 6 {
		t.Fatal(all, err)
	}
	return all
}

// TestNoAtomicsCallsAndLocalMemory checks that no kernel contains calls, local memory, or atomic
// additions, which would make the order of a sum random.
func TestNoAtomicsCallsAndLocalMemory(t *testing.T) {
	bad := regexp.MustCompile(`(?m)^\s*(@%p\d+\s+)?((atom|red|call)[. ]|\.local ).*$`)
	for _, file := range committed(t) {
		text, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		if line := bad.Find(text); line != nil {
			t.Errorf("%s: %s", filepath.Base(file), bytes.TrimSpace(line))
		}
	}
}
