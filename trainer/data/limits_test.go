package data

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestCompressedImagesTakeBoundedMemory checks that a small file that expands to many pixels is
// rejected before they are decompressed.
func TestCompressedImagesTakeBoundedMemory(t *testing.T) {
	const most = 8 << 20
	pixels := func(images uint32) []byte {
		return gzipped(t, idxBytes(make([]byte, images*32*32), images, 32, 32))
	}
	for _, c := range []struct {
		name   string
		images []byte
		labels []byte
		want   string
		hint   string
	}{
		{
			name: "more labels than images", images: pixels(40_000), labels: idxBytes([]byte{0, 1}, 2),
			want: "2 labels",
		},
		{
			name: "expands too far", images: pixels(80_000), labels: idxBytes(bytes.Repeat([]byte{0, 1}, 40_000), 80_000),
			want: "expands to more than", hint: "gunzip",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "train-images-idx3-ubyte.gz"), c.images)
			write(t, filepath.Join(dir, "train-labels-idx1-ubyte"), c.labels)
			var err error
			got := allocated(func() { _, _, err = Open(t.Context(), Options{Kind: KindIDX, Path: dir}) })
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(hint(err), c.hint) {
				t.Errorf("got %v, hint %q; want %q, %q", err, hint(err), c.want, c.hint)
			}
			if got > most {
				t.Errorf("allocated %d bytes, want at most %d", got, most)
			}
		})
	}
}

// TestDecompressionIsBounded checks that a compressed file of any kind may expand only up to a
// limit.
func TestDecompressionIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.gz")
	write(t, path, gzipped(t, bytes.Repeat([]byte("1,2\n"), 20<<20)))
	c, err := openContent(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n, err := io.Copy(io.Discard, c)
	if err == nil || n > freeExpansion || !strings.Contains(hint(err), "gunzip") {
		t.Errorf("%d bytes, %v, hint %q; want an error after %d bytes", n, err, hint(err), freeExpansion)
	}
	for _, kind := range []string{KindCSV, KindText} {
		if _, _, err := Open(t.Context(), Options{Kind: kind, Path: path, Context: 4}); err == nil || !strings.Contains(err.Error(), "expands to more than") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// counting is a text that repeats without end.
type counting struct {
	text string
	n    int
}

func (c *counting) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = c.text[(c.n+i)%len(c.text)]
	}
	c.n += len(b)
	return len(b), nil
}

// TestCSVRecordsAreBounded checks that a file without an end of a record is rejected after a
// limited number of bytes.
func TestCSVRecordsAreBounded(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"one field", "1"},
		{"one row", "1,"},
		{"empty lines", "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &counting{text: c.text}
			_, err := readCSV("f.csv", in, csvRules{})
			if err == nil || !strings.Contains(err.Error(), "no end of a record") {
				t.Errorf("got %v", err)
			}
			if in.n > 2*maxRecord {
				t.Errorf("read %d bytes, want about %d", in.n, maxRecord)
			}
		})
	}
	in := io.MultiReader(strings.NewReader("1,2\n\""), &counting{text: "x\n"})
	if _, err := readCSV("f.csv", in, csvRules{}); err == nil || !strings.Contains(err.Error(), "no end of a record") {
		t.Errorf("a quoted field: %v", err)
	}
}

// TestOpenStopsWithTheContext checks for every kind of data that Open returns the cause of its
// context.
func TestOpenStopsWithTheContext(t *testing.T) {
	dir := mnistDir(t)
	csv, tokens := filepath.Join(dir, "a.csv"), filepath.Join(dir, "tokens.bin")
	write(t, csv, []byte("1,2\n3,4\n"))
	write(t, tokens, bytes.Repeat([]byte{1, 0, 2, 0}, 100))
	reason := errors.New("asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	for _, o := range []Options{
		{Kind: KindIDX, Path: dir}, {Kind: KindCSV, Path: csv}, {Kind: KindText, Path: csv, Context: 2},
		{Kind: KindTokens, Path: tokens, Context: 2}, {Kind: KindSafetensors, Path: arrayFile(t, dir)},
	} {
		if _, _, err := Open(t.Context(), o); err != nil {
			t.Errorf("%s: %v", o.Kind, err)
		}
		if _, _, err := Open(ctx, o); !errors.Is(err, reason) {
			t.Errorf("%s: got %v, want %v", o.Kind, err, reason)
		}
	}
}

// arrayFile writes a safetensors file of two samples.
func arrayFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "a.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := safetensors.Write(f, []safetensors.Tensor{
		{Name: "x", Shape: []int{2, 1}, Data: []float32{1, 2}}, {Name: "y", Shape: []int{2}, Data: []float32{1, 2}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	return path
}
