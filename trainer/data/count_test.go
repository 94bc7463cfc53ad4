package data

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCountSamples checks that Count determines the number of samples from headers and small
// files, and does not read large files.
func TestCountSamples(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	large := write("large.csv", "")
	if err := os.Truncate(large, maxCounted+1); err != nil {
		t.Fatal(err)
	}
	write("train-images-idx3-ubyte", "\x00\x00\x08\x03\x00\x00\xea\x60") // no pixels follow
	builtin, _, err := openBuiltin(t.Context(), BuiltinPrefix+fashionMNIST)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		options Options
		want    int
		ok      bool
	}{
		{"synthetic", Options{Kind: KindSynthetic, Samples: 7}, 7, true},
		{"builtin", Options{Kind: KindIDX, Path: BuiltinPrefix + fashionMNIST}, builtin.Len(), true},
		{"unknown builtin", Options{Kind: KindIDX, Path: BuiltinPrefix + "x"}, 0, false},
		{"header of images", Options{Kind: KindIDX, Path: dir}, 60000, true},
		{"missing directory", Options{Kind: KindIDX, Path: filepath.Join(dir, "none")}, 0, false},
		{"small file", Options{Kind: KindCSV, Path: write("a.csv", "x,y\n1,2\n3,4\n5,6\n")}, 3, true},
		{"invalid file", Options{Kind: KindCSV, Path: write("b.csv", "x,y\n1,?\n")}, 0, false},
		{"large file", Options{Kind: KindCSV, Path: large}, 0, false},
		{"missing file", Options{Kind: KindText, Path: filepath.Join(dir, "none.txt")}, 0, false},
	} {
		if n, ok := Count(t.Context(), c.options); n != c.want || ok != c.ok {
			t.Errorf("%s: got %d, %v, want %d, %v", c.name, n, ok, c.want, c.ok)
		}
	}
}
