package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCheckedInFilesAreGenerated checks that the assembly files match their generator.
func TestCheckedInFilesAreGenerated(t *testing.T) {
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what vecgen writes: run go generate ./trainer/vec", name)
		}
	}
}
