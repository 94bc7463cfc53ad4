package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// read reads the only array of a file.
func read(t *testing.T, header string, data []byte) (Array, *bytes.Reader) {
	t.Helper()
	content := file(header, data)
	arrays, _, err := ReadHeader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	return arrays[0], bytes.NewReader(content)
}

// TestSmallFloatsEqualPyTorch checks that 16-bit values convert to float32 as in PyTorch, bit for
// bit except for NaN. testdata/halves.py wrote the expected bits.
func TestSmallFloatsEqualPyTorch(t *testing.T) {
	raw, err := os.ReadFile("testdata/halves.json")
	if err != nil {
		t.Fatal(err)
	}
	golden := map[DType]map[string][]uint32{}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	for dtype, g := range golden {
		var data []byte
		for _, h := range g["bits"] {
			data = binary.LittleEndian.AppendUint16(data, uint16(h))
		}
		header := `{"a":{"dtype":"` + string(dtype) + `","shape":[256],"data_offsets":[0,512]}}`
		a, f := read(t, header, data)
		values, err := a.Float32s(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if want := math.Float32frombits(g["float32"][i]); math.Float32bits(v) != math.Float32bits(want) && (v == v || want == want) {
				t.Errorf("%s %#04x: %#08x, want %#08x", dtype, g["bits"][i], math.Float32bits(v), g["float32"][i])
			}
		}
	}
	if len(golden) != 2 {
		t.Errorf("%d types, want 2", len(golden))
	}
}

// TestReadArrays checks the conversion of each type, and the errors for types that cannot be
// converted and for truncated files.
func TestReadArrays(t *testing.T) {
	a, f := read(t, `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0})
	if got, err := a.Float32s(f); err != nil || !slices.Equal(got, []float32{1, -2}) {
		t.Errorf("F32: %v, %v", got, err)
	}
	given := make([]float32, 2)
	if err := a.ReadFloat32s(f, given); err != nil || !slices.Equal(given, []float32{1, -2}) {
		t.Errorf("F32 into given memory: %v, %v", given, err)
	}
	if _, err := a.Int64s(f); err == nil || err.Error() != `at byte 62: tensor "a" has type F32, want I64, I32 or U8` {
		t.Errorf("F32 as integers: %v", err)
	}
	a, f = read(t, `{"a":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]}}`, []byte{200, 1})
	if got, err := a.Float32s(f); err != nil || !slices.Equal(got, []float32{200, 1}) {
		t.Errorf("U8: %v, %v", got, err)
	}
	if got, err := a.Int64s(f); err != nil || !slices.Equal(got, []int64{200, 1}) {
		t.Errorf("U8 as integers: %v, %v", got, err)
	}
	a, f = read(t, `{"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}`, []byte{0xfe, 0xff, 0xff, 0xff, 3, 0, 0, 0})
	if got, err := a.Int64s(f); err != nil || !slices.Equal(got, []int64{-2, 3}) {
		t.Errorf("I32: %v, %v", got, err)
	}
	a, f = read(t, `{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}`, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	if got, err := a.Int64s(f); err != nil || !slices.Equal(got, []int64{-2}) {
		t.Errorf("I64: %v, %v", got, err)
	}
	if _, err := a.Float32s(f); err == nil || err.Error() != `at byte 62: tensor "a" has type I64, want F32, F16, BF16 or U8` {
		t.Errorf("I64 as float32: %v", err)
	}
	if err := a.ReadFloat32s(f, given); err == nil || err.Error() != `at byte 62: tensor "a" has type I64, want F32` {
		t.Errorf("I64 into given memory: %v", err)
	}
	// The file is truncated after its header was read.
	if _, err := a.Read(bytes.NewReader(make([]byte, a.End-3))); err == nil || err.Error() != `read tensor "a": at byte 67: unexpected end of data` {
		t.Errorf("cut file: %v", err)
	}
}

// TestTypesBesideOthers checks that a file with a tensor of a type that this package does not convert
// can be read: the other tensors have their values.
func TestTypesBesideOthers(t *testing.T) {
	for dtype, size := range map[string]int{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "C64": 64} {
		header := fmt.Sprintf(`{"a":{"dtype":%q,"shape":[2,4],"data_offsets":[0,%d]},"b":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}}`, dtype, size, size, size+1)
		content := file(header, append(make([]byte, size), 7))
		arrays, _, err := ReadHeader(bytes.NewReader(content), int64(len(content)))
		if err != nil || len(arrays) != 2 || arrays[0].Len() != 8 {
			t.Errorf("%s: %+v, %v", dtype, arrays, err)
			continue
		}
		if got, err := arrays[1].Float32s(bytes.NewReader(content)); err != nil || !slices.Equal(got, []float32{7}) {
			t.Errorf("tensor beside %s: %v, %v", dtype, got, err)
		}
		if _, err := arrays[0].Float32s(bytes.NewReader(content)); err == nil || !strings.Contains(err.Error(), "has type "+dtype) {
			t.Errorf("%s as float32: %v", dtype, err)
		}
	}
}

// FuzzReadHeader checks that arrays are consecutive within the file, and that arrays of supported
// types can be read.
func FuzzReadHeader(f *testing.F) {
	f.Add(`{"a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}`, make([]byte, 4))
	f.Add(`{"a":{"dtype":"I64","shape":[],"data_offsets":[1,9]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, make([]byte, 9))
	f.Add(`{"a":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}}`, []byte{})
	f.Fuzz(func(t *testing.T, header string, data []byte) {
		content := file(header, data) // with the length that every file must have
		arrays, _, err := ReadHeader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return
		}
		r := bytes.NewReader(content)
		for i, a := range arrays {
			if i > 0 && a.Begin != arrays[i-1].End || a.End > int64(len(content)) {
				t.Fatalf("%+v behind %+v in %d bytes", a, arrays[max(0, i-1)], len(content))
			}
			switch raw, err := a.Read(r); {
			case err != nil:
				t.Fatal(err)
			case !bytes.Equal(raw, content[a.Begin:a.End]):
				t.Fatalf("%+v: not the bytes of the file", a)
			}
			switch a.DType {
			case F32, F16, BF16, U8:
				if v, err := a.Float32s(r); err != nil || len(v) != a.Len() {
					t.Fatalf("%+v: %d values, %v", a, len(v), err)
				}
			case I32, I64:
				if v, err := a.Int64s(r); err != nil || len(v) != a.Len() {
					t.Fatalf("%+v: %d values, %v", a, len(v), err)
				}
			}
		}
	})
}
