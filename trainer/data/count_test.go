package data

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	compressed := func(name, text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return write(name, b.String())
	}
	// A directory with links to itself, one of which has the name of a pattern: only that link leads to files,
	// and all other links would match the pattern in 100^6 ways.
	links := t.TempDir()
	for i := range 100 {
		if err := os.Symlink(".", filepath.Join(links, cmp.Or(strings.Repeat("a", i), "*"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(links, "x.bin"), []byte{1, 0, 2, 0}, 0o600); err != nil {
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
		{"compressed file", Options{Kind: KindCSV, Path: compressed("a.gz", "x,y\n1,2\n3,4\n")}, 2, true},
		{"compressed file that becomes large", Options{Kind: KindCSV, Path: compressed("b.gz", "x,y\n"+strings.Repeat("1,2\n", maxCounted/4))}, 0, false},
		{"held-out file that becomes large", Options{Kind: KindCSV, Path: write("c.csv", "x,y\n1,2\n"),
			EvalPath: compressed("b.gz", "x,y\n"+strings.Repeat("1,2\n", maxCounted/4))}, 0, false},
		{"directories in a pattern", Options{Kind: KindTokens, Path: filepath.Join(links, "*/*/*/*/*/*/*.bin"), DType: "uint16", Context: 1, VocabularySize: 8}, 1, true},
		{"missing file", Options{Kind: KindText, Path: filepath.Join(dir, "none.txt")}, 0, false},
	} {
		if n, ok := Count(t.Context(), c.options); n != c.want || ok != c.ok {
			t.Errorf("%s: got %d, %v, want %d, %v", c.name, n, ok, c.want, c.ok)
		}
	}
}
