package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// array is a tensor to write to a file.
type array struct {
	name, dtype string
	shape       string // as JSON
	raw         []byte
}

// safetensorsBytes returns a file of arrays.
func safetensorsBytes(arrays ...array) []byte {
	var entries []string
	var body []byte
	for _, a := range arrays {
		entries = append(entries, fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`,
			a.name, a.dtype, a.shape, len(body), len(body)+len(a.raw)))
		body = append(body, a.raw...)
	}
	header := "{" + strings.Join(entries, ",") + "}"
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), body...)
}

func float32Bytes(values ...float32) []byte {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

func int64Bytes(values ...int64) []byte {
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return raw
}

// arraysBytes returns a file with images x and labels y, and with halves, which are consecutive
// integers, and values.
func arraysBytes(n int) []byte {
	var x, y, halves []byte
	var values []float32
	for i := range n {
		x = append(x, byte(i), byte(i+1), 0, 255, 7, 8)
		y = append(y, byte(i%3))
		halves = binary.LittleEndian.AppendUint16(halves, uint16(math.Float32bits(float32(i))>>16))
		values = append(values, float32(i)/2, -1)
	}
	return safetensorsBytes(
		array{"x", "U8", fmt.Sprintf("[%d,1,2,3]", n), x},
		array{"y", "U8", fmt.Sprintf("[%d]", n), y},
		array{"halves", "BF16", fmt.Sprintf("[%d,1]", n), halves},
		array{"values", "F32", fmt.Sprintf("[%d,2]", n), float32Bytes(values...)},
	)
}

// TestOpenSafetensors checks images, rows, labels, and targets from a safetensors file.
func TestOpenSafetensors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	write(t, path, arraysBytes(10))
	images, none, err := Open(t.Context(), Options{Kind: KindSafetensors, Path: path})
	if err != nil || none != nil {
		t.Fatal(none, err)
	}
	if c, h, w := images.Image(); c != 1 || h != 2 || w != 3 || images.Outputs() != 3 || images.Len() != 10 {
		t.Errorf("%d images of %d x %d x %d, %d classes", images.Len(), c, h, w, images.Outputs())
	}
	b := NewBatch(images, 2)
	images.Read([]int{4, 1}, b)
	if want := []float32{4, 5, 0, 255, 7, 8, 1, 2, 0, 255, 7, 8}; !slices.Equal(b.X, want) || !slices.Equal(b.Labels, []int32{1, 1}) {
		t.Errorf("read %v, labels %v", b.X, b.Labels)
	}
	values, _, err := Open(t.Context(), Options{Kind: KindSafetensors, Path: path, Features: "halves", Target: "values"})
	if err != nil {
		t.Fatal(err)
	}
	b = NewBatch(values, 2)
	values.Read([]int{9, 3}, b)
	if !slices.Equal(b.X, []float32{9, 3}) || !slices.Equal(b.Targets, []float32{4.5, -1, 1.5, -1}) {
		t.Errorf("read %v, targets %v", b.X, b.Targets)
	}
	if c, h, w := values.Image(); c+h+w != 0 {
		t.Errorf("rows of numbers are an image of %d x %d x %d", c, h, w)
	}
}

// TestOpenSafetensorsHeldOutFile checks that a file of held-out samples must match the training
// samples.
func TestOpenSafetensorsHeldOutFile(t *testing.T) {
	dir := t.TempDir()
	train, eval := filepath.Join(dir, "train"), filepath.Join(dir, "eval")
	write(t, train, arraysBytes(10))
	write(t, eval, arraysBytes(2))
	_, e, err := Open(t.Context(), Options{Kind: KindSafetensors, Path: train, EvalPath: eval})
	if err != nil {
		t.Fatal(err)
	}
	if e.Len() != 2 || e.Outputs() != 3 {
		t.Errorf("%d samples of %d classes held out, want 2 of 3", e.Len(), e.Outputs())
	}
	for name, c := range map[string]struct {
		x, y array
		want string
	}{
		"shape":  {array{"x", "U8", "[1,1,3,2]", make([]byte, 6)}, array{"y", "U8", "[1]", []byte{0}}, `tensor "x": shape [1 1 3 2] does not match "TRAIN", which has 6 inputs per sample`},
		"target": {array{"x", "U8", "[1,1,2,3]", make([]byte, 6)}, array{"y", "F32", "[1]", make([]byte, 4)}, `tensor "y": shape [1] and type F32 do not match "TRAIN"`},
		"label":  {array{"x", "U8", "[2,1,2,3]", make([]byte, 12)}, array{"y", "U8", "[2]", []byte{2, 3}}, `tensor "y": label 3, but training labels are 0 to 2`},
	} {
		write(t, eval, safetensorsBytes(c.x, c.y))
		_, _, err := Open(t.Context(), Options{Kind: KindSafetensors, Path: train, EvalPath: eval})
		if want := strings.ReplaceAll(c.want, "TRAIN", train); err == nil || !strings.HasSuffix(err.Error(), want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("read %q: at byte ", eval)) {
			t.Errorf("%s: error %v,\nwant  %s", name, err, want)
		}
	}
}

// TestOpenSafetensorsErrors checks that errors name the file, the byte, and the tensor, with a
// hint where a setting can fix them.
func TestOpenSafetensorsErrors(t *testing.T) {
	x := array{"x", "F32", "[2,2]", float32Bytes(1, 2, 3, 4)}
	y := array{"y", "I64", "[2]", int64Bytes(0, 1)}
	for _, c := range []struct {
		name    string
		content []byte
		o       Options
		want    string // after the path
		hint    bool
	}{
		{"empty", nil, Options{}, `at byte 0: read the header's length: unexpected end of data`, false},
		{"cut", safetensorsBytes(x, y)[:140], Options{}, `header: at byte 69: tensor "y": its data are the bytes 136 to 152, but the file has 140`, false},
		{"no target", safetensorsBytes(x), Options{}, `no tensor "y"`, true},
		{"no such features", safetensorsBytes(x, y), Options{Features: "pixels"}, `no tensor "pixels"`, true},
		{"not a number", safetensorsBytes(array{"x", "F32", "[2,2]", float32Bytes(1, 2, 3, float32(math.NaN()))}, y), Options{}, `at byte 132: tensor "x": NaN is not finite`, false},
		{"one dimension", safetensorsBytes(array{"x", "U8", "[2]", []byte{1, 2}}, y), Options{}, `at byte 115: tensor "x": shape [2], want [samples, inputs], [samples, height, width] or [samples, channels, height, width]`, false},
		{"no samples", safetensorsBytes(array{"x", "F32", "[0,2]", nil}, array{"y", "I64", "[0]", nil}), Options{}, `at byte 117: tensor "x": shape [0 2] has no values`, false},
		{"fewer targets", safetensorsBytes(x, array{"y", "I64", "[1]", int64Bytes(0)}), Options{}, `at byte 136: tensor "y": shape [1], but the inputs have shape [2 2]: not one target for each sample`, false},
		{"empty targets", safetensorsBytes(x, array{"y", "F32", "[2,0]", nil}), Options{}, `at byte 138: tensor "y": shape [2 0] has no values`, false},
		{"type of features", safetensorsBytes(array{"x", "I64", "[2,1]", int64Bytes(0, 1)}, y), Options{}, `at byte 120: tensor "x" has type I64, want F32, F16, BF16 or U8`, false},
		{"type of target", safetensorsBytes(x, array{"y", "F16", "[2]", make([]byte, 4)}), Options{}, `at byte 136: tensor "y" has type F16, want I64, I32 or U8, or F32 for values to predict`, false},
		{"negative label", safetensorsBytes(x, array{"y", "I64", "[2]", int64Bytes(0, -1)}), Options{}, `at byte 144: tensor "y": label -1, want 0 to 9999`, true},
		{"large label", safetensorsBytes(x, array{"y", "I32", "[2]", []byte{0x10, 0x27, 0, 0, 0, 0, 0, 0}}), Options{}, `at byte 136: tensor "y": label 10000, want 0 to 9999`, true},
		{"labels of two dimensions", safetensorsBytes(x, array{"y", "I64", "[2,1]", int64Bytes(0, 1)}), Options{}, `at byte 138: tensor "y": shape [2 1], but labels have the shape [samples]`, false},
		{"one class", safetensorsBytes(x, array{"y", "I64", "[2]", int64Bytes(3, 3)}), Options{}, `at byte 136: tensor "y": all 2 labels are 3, want at least 2 classes`, true},
		{"labels for regression", safetensorsBytes(x, y), Options{Task: TaskRegression}, `at byte 136: tensor "y": type I64, but values to predict are F32`, true},
		{"numbers for classification", safetensorsBytes(x, array{"y", "F32", "[2]", float32Bytes(0, 1)}), Options{Task: TaskClassification}, `at byte 136: tensor "y": type F32, but classes are integers`, true},
		{"targets of three dimensions", safetensorsBytes(x, array{"y", "F32", "[2,1,1]", float32Bytes(0, 1)}), Options{}, `at byte 140: tensor "y": shape [2 1 1], want [samples] or [samples, values]`, false},
		{"nothing to hold out", safetensorsBytes(x, y), Options{Holdout: 0.1}, `holding out a share of 0.1 of 2 samples leaves 0 to evaluate on and 2 to train on`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			write(t, path, c.content)
			c.o.Kind, c.o.Path = KindSafetensors, path
			_, _, err := Open(t.Context(), c.o)
			want := fmt.Sprintf("read %q: %s", path, c.want)
			if err == nil || err.Error() != want || (hint(err) != "") != c.hint {
				t.Errorf("error %v, hint %q;\nwant  %s", err, hint(err), want)
			}
		})
	}
}

// FuzzSafetensors checks that any file is rejected with an error that names it or makes a
// consistent data set.
func FuzzSafetensors(f *testing.F) {
	add := func(content []byte, features, target string) {
		n := 8 + binary.LittleEndian.Uint64(content)
		f.Add(string(content[8:n]), content[n:], features, target)
	}
	add(arraysBytes(3), "x", "y")
	add(arraysBytes(3), "halves", "values")
	add(safetensorsBytes(array{"x", "F16", "[1,1]", []byte{0, 0x7c}}, array{"y", "I32", "[1]", make([]byte, 4)}), "", "")
	path := filepath.Join(f.TempDir(), "f")
	f.Fuzz(func(t *testing.T, header string, values []byte, features, target string) {
		// With the length that every file must have.
		content := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		content = append(content, values...)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		d, _, err := Open(t.Context(), Options{Kind: KindSafetensors, Path: path, Features: features, Target: target})
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error without the file: %v", err)
			}
			return
		}
		checkDataset(t, d)
	})
}
