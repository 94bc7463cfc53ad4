package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// idxBytes returns an IDX file of unsigned bytes.
func idxBytes(values []byte, shape ...uint32) []byte {
	out := []byte{0, 0, idxUnsignedByte, byte(len(shape))}
	for _, d := range shape {
		out = binary.BigEndian.AppendUint32(out, d)
	}
	return append(out, values...)
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readIDX reads a plain file.
func readIDX(file []byte, dims int) (shape []int, values []byte, err error) {
	f, err := readIDXHeader("f", &content{from: bytes.NewReader(file), size: int64(len(file))}, dims)
	if err != nil {
		return nil, nil, err
	}
	values, err = f.values()
	return f.shape, values, err
}

// TestReadIDX checks the shape and the values of a valid file.
func TestReadIDX(t *testing.T) {
	shape, values, err := readIDX(idxBytes([]byte{1, 2, 3, 4, 5, 6}, 1, 2, 3), 3)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(shape, []int{1, 2, 3}) || !bytes.Equal(values, []byte{1, 2, 3, 4, 5, 6}) {
		t.Errorf("shape %v, values %v", shape, values)
	}
}

// TestReadIDXErrors checks that errors name the byte, and that the sizes in a header do not
// allocate memory.
func TestReadIDXErrors(t *testing.T) {
	good := idxBytes([]byte{1, 2}, 2)
	changed := func(at int, b byte) []byte {
		c := slices.Clone(good)
		c[at] = b
		return c
	}
	for _, c := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty", nil, `read "f": at byte 0: header of 8 bytes: the file is truncated`},
		{"short header", good[:5], `read "f": at byte 5: header of 8 bytes: the file is truncated`},
		{"HTML", []byte("<!DOCTYPE html>"), `read "f": at byte 0: not an IDX file: begins with 3c 21, want 00 00`},
		{"floats", changed(2, 0x0d), `read "f": at byte 2: values of type 0x0d, want 0x08 (unsigned byte)`},
		{"images for labels", changed(3, 3), `read "f": at byte 3: 3 dimensions, want 1`},
		{"no samples", idxBytes(nil, 0), `read "f": at byte 4: dimension 1 is 0`},
		{"huge", idxBytes(nil, 0xffffffff), `read "f": at byte 4: 4294967295 samples, want at most 214748363`},
		{"short", good[:9], `read "f": at byte 9: the file ends after 1 of 2 values`},
		{"long", append(slices.Clone(good), 0), `read "f": at byte 10: bytes after the last of 2 values`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := readIDX(c.content, 1)
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v,\nwant  %s", err, c.want)
			}
		})
	}
	if _, _, err := readIDX(idxBytes(nil, 1<<20, 1<<10, 4), 3); err == nil || err.Error() != `read "f": at byte 12: more than 2147483648 values` {
		t.Errorf("product too large: %v", err)
	}
	// A header that announces 2 GiB must not allocate 2 GiB of memory.
	_, _, err := readIDX(idxBytes(make([]byte, 10), 1<<20, 1<<10, 2), 3)
	if err == nil || err.Error() != `read "f": at byte 26: the file ends after 10 of 2147483648 values` {
		t.Errorf("large claim: %v", err)
	}
}

// mnistDir writes the four files: 4 training and 2 held-out images of 2x2.
func mnistDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "train-images-idx3-ubyte"), idxBytes([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255, 254, 253, 252}, 4, 2, 2))
	write(t, filepath.Join(dir, "train-labels-idx1-ubyte.gz"), gzipped(t, idxBytes([]byte{0, 2, 1, 0}, 4)))
	write(t, filepath.Join(dir, "t10k-images-idx3-ubyte.gz"), gzipped(t, idxBytes(make([]byte, 8), 2, 2, 2)))
	write(t, filepath.Join(dir, "t10k-labels-idx1-ubyte"), idxBytes([]byte{1, 2}, 2))
	return dir
}

// TestOpenIDX checks samples, labels, and held-out samples of a directory in the format of MNIST.
func TestOpenIDX(t *testing.T) {
	train, eval, err := Open(t.Context(), Options{Kind: KindIDX, Path: mnistDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	checkDataset(t, train)
	checkDataset(t, eval)
	if train.Len() != 4 || train.Inputs() != 4 || train.Outputs() != 3 || eval.Len() != 2 || eval.Outputs() != 3 {
		t.Errorf("shapes %d x %d -> %d, %d -> %d", train.Len(), train.Inputs(), train.Outputs(), eval.Len(), eval.Outputs())
	}
	x, labels := make([]float32, 8), make([]int32, 2)
	train.Read([]int{3, 1}, Batch{X: x, Labels: labels})
	want := []float32{1, 254.0 / 255, 253.0 / 255, 252.0 / 255, 4.0 / 255, 5.0 / 255, 6.0 / 255, 7.0 / 255}
	if !slices.Equal(x, want) || !slices.Equal(labels, []int32{0, 2}) {
		t.Errorf("read %v, labels %v; want %v", x, labels, want)
	}
}

// TestOpenIDXHeldOutFiles checks that held-out files are optional in the same directory, and
// required in a separate one.
func TestOpenIDXHeldOutFiles(t *testing.T) {
	dir, other := mnistDir(t), mnistDir(t)
	for _, name := range []string{"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, eval, err := Open(t.Context(), Options{Kind: KindIDX, Path: dir}); err != nil || eval != nil {
		t.Errorf("no held-out files: %v, %v", eval, err)
	}
	if _, eval, err := Open(t.Context(), Options{Kind: KindIDX, Path: dir, EvalPath: other}); err != nil || eval == nil {
		t.Errorf("held-out files elsewhere: %v, %v", eval, err)
	}
	if _, _, err := Open(t.Context(), Options{Kind: KindIDX, Path: other, EvalPath: dir}); err == nil {
		t.Error("held-out folder without files: no error")
	}
}

// TestOpenIDXErrors checks that errors name the file, for missing, inconsistent, and corrupt
// files.
func TestOpenIDXErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		file   string
		labels []byte // nil: remove the file
		want   string
	}{
		{"missing", "train-labels-idx1-ubyte.gz", nil, `read "DIR/train-labels-idx1-ubyte": neither this file nor train-labels-idx1-ubyte.gz exists`},
		{"missing half of held out", "t10k-labels-idx1-ubyte", nil, `read "DIR/t10k-labels-idx1-ubyte": neither this file nor t10k-labels-idx1-ubyte.gz exists`},
		{"sizes differ", "t10k-labels-idx1-ubyte", idxBytes([]byte{1, 2, 0}, 3), `read "DIR/t10k-labels-idx1-ubyte": at byte 4: 3 labels, but "DIR/t10k-images-idx3-ubyte.gz" has 2 images`},
		{"new label", "t10k-labels-idx1-ubyte", idxBytes([]byte{1, 3}, 2), `read "DIR/t10k-labels-idx1-ubyte": at byte 9: label 3, but training labels are 0 to 2`},
		{"one class", "train-labels-idx1-ubyte.gz", gzipped(t, idxBytes([]byte{2, 2, 2, 2}, 4)), `read "DIR/train-labels-idx1-ubyte.gz": at byte 8: all 4 labels are 2, want at least 2 classes`},
		{"cut gzip", "train-labels-idx1-ubyte.gz", gzipped(t, idxBytes([]byte{0, 2, 1, 0}, 4))[:20], `read "DIR/train-labels-idx1-ubyte.gz": at byte 9: the file is truncated`},
		{"gzip without data", "train-labels-idx1-ubyte.gz", []byte{0x1f, 0x8b}, `read "DIR/train-labels-idx1-ubyte.gz": the file is truncated`},
		{"other size of image", "t10k-images-idx3-ubyte.gz", idxBytes(make([]byte, 18), 2, 3, 3), `read "DIR/t10k-images-idx3-ubyte.gz": at byte 8: images of 3 x 3 pixels, but training images have 2 x 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := mnistDir(t)
			path := filepath.Join(dir, c.file)
			if c.labels == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else {
				write(t, path, c.labels)
			}
			_, _, err := Open(t.Context(), Options{Kind: KindIDX, Path: dir})
			if want := strings.ReplaceAll(c.want, "DIR", dir); err == nil || err.Error() != want {
				t.Errorf("error %v,\nwant  %s", err, want)
			}
		})
	}
	t.Run("damaged gzip", func(t *testing.T) {
		dir := mnistDir(t)
		path := filepath.Join(dir, "train-labels-idx1-ubyte.gz")
		content := gzipped(t, idxBytes([]byte{0, 2, 1, 0}, 4))
		content[len(content)-6] ^= 1 // in the checksum
		write(t, path, content)
		_, _, err := Open(t.Context(), Options{Kind: KindIDX, Path: dir})
		if !errors.Is(err, gzip.ErrChecksum) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want a checksum error of %s", err, path)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		for _, path := range []string{"/no/such/folder", filepath.Join(mnistDir(t), "train-images-idx3-ubyte"), ""} {
			_, _, err := Open(t.Context(), Options{Kind: KindIDX, Path: path})
			if err == nil || hint(err) == "" {
				t.Errorf("folder %q: error %v, hint %q", path, err, hint(err))
			}
		}
	})
}

// TestDigestOfIDX checks that the digest depends on pixels and labels, not on compression.
func TestDigestOfIDX(t *testing.T) {
	digest := func(change func(dir string)) string {
		dir := mnistDir(t)
		change(dir)
		train, _, err := Open(t.Context(), Options{Kind: KindIDX, Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		return train.Digest()
	}
	same := digest(func(string) {})
	if got := digest(func(dir string) {
		write(t, filepath.Join(dir, "train-labels-idx1-ubyte"), idxBytes([]byte{0, 2, 1, 0}, 4))
	}); got != same {
		t.Error("digest depends on compression")
	}
	if got := digest(func(dir string) {
		write(t, filepath.Join(dir, "train-labels-idx1-ubyte"), idxBytes([]byte{0, 2, 1, 1}, 4))
	}); got == same {
		t.Error("digest does not see a changed label")
	}
	if got := digest(func(dir string) {
		write(t, filepath.Join(dir, "train-images-idx3-ubyte"), idxBytes([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255, 254, 253, 251}, 4, 2, 2))
	}); got == same {
		t.Error("digest does not see a changed pixel")
	}
}

// FuzzIDX checks that any file is rejected with its position or is equal to the values that were
// read.
func FuzzIDX(f *testing.F) {
	f.Add(idxBytes([]byte{1, 2, 3, 4, 5, 6}, 1, 2, 3), 3)
	f.Add(idxBytes([]byte{1, 2}, 2), 1)
	f.Add(idxBytes(nil, 0xffffffff), 1)
	f.Add([]byte("<html>"), 1)
	f.Fuzz(func(t *testing.T, content []byte, dims int) {
		if dims < 1 || dims > 3 {
			return
		}
		shape, values, err := readIDX(content, dims)
		if err != nil {
			if !strings.HasPrefix(err.Error(), `read "f": at byte `) {
				t.Errorf("error without file and byte: %v", err)
			}
			return
		}
		var again []uint32
		for _, d := range shape {
			again = append(again, uint32(d))
		}
		if !bytes.Equal(idxBytes(values, again...), content) {
			t.Error("what was read is not what the file holds")
		}
	})
}
