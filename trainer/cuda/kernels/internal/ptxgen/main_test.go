package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

func TestCheckedInFilesAreGenerated(t *testing.T) {
	if _, err := exec.LookPath(compiler); err != nil && os.Getenv("CI") == "" {
		t.Skipf("left out: whether the kernels' PTX is that of their sources; it takes %s", compiler)
	}
	const dir = "../.."
	files, err := compile(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "ptx", "*"))
	if err != nil || len(kept) != len(files) || len(kept) < 5 {
		t.Errorf("%d files for %d sources: %v", len(kept), len(files), err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, "ptx", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what ptxgen writes: run make kernels", name)
		}
	}
}

// No kernel adds atomically, which would leave the order of a sum to chance; none calls
// what PTX has no instruction for; and none has arrays that are not in registers.
func TestNoAtomicsCallsAndLocalMemory(t *testing.T) {
	kept, err := filepath.Glob("../../ptx/*.ptx")
	if err != nil || len(kept) < 5 {
		t.Fatal(kept, err)
	}
	bad := regexp.MustCompile(`(?m)^\s*(@%p\d+\s+)?((atom|red|call)[. ]|\.local ).*$`)
	for _, file := range kept {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if line := bad.Find(text); line != nil {
			t.Errorf("%s: %s", filepath.Base(file), bytes.TrimSpace(line))
		}
	}
}
