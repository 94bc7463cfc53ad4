package safetensors

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func sample() []Tensor {
	return []Tensor{
		{"2.bias", []int{2}, []float32{float32(math.Inf(1)), -0.5}},
		{"0.weight", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}},
		{"empty", []int{0, 4}, []float32{}},
		{"scalar", []int{}, []float32{7}},
	}
}

func file(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

// split is the inverse of file.
func split(b []byte) (header string, data []byte) {
	n := 8 + binary.LittleEndian.Uint64(b)
	return string(b[8:n]), b[n:]
}

// TestHeaderIsBounded checks that a large header is rejected before it is read, and a shape with
// many dimensions before it is decoded.
func TestHeaderIsBounded(t *testing.T) {
	large := file("{"+strings.Repeat(" ", maxHeader)+"}", nil)
	r := bytes.NewReader(large)
	if _, _, err := ReadHeader(r, int64(len(large))); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("large header: %v", err)
	}
	if read := len(large) - r.Len(); read > 8 {
		t.Errorf("large header: read %d bytes, want 8", read)
	}
	for _, c := range []struct{ dims, most int }{{16, 1 << 20}, {17, 1 << 20}, {1_000_000, 32 << 20}} {
		b := file(`{"a":{"dtype":"U8","shape":[1`+strings.Repeat(",1", c.dims-1)+`],"data_offsets":[0,1]}}`, []byte{1})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := ReadHeader(bytes.NewReader(b), int64(len(b)))
		runtime.ReadMemStats(&after)
		if (err == nil) != (c.dims <= 16) {
			t.Errorf("%d dimensions: %v", c.dims, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(c.most) {
			t.Errorf("%d dimensions: allocated %d bytes, want at most %d", c.dims, got, c.most)
		}
	}
}

// TestRoundTrip checks that tensors and metadata are read as they were written, with aligned data.
func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	meta := map[string]string{"step": "12"}
	if err := Write(&b, sample(), meta); err != nil {
		t.Fatal(err)
	}
	if (binary.LittleEndian.Uint64(b.Bytes())+8)%8 != 0 {
		t.Error("the data is not aligned")
	}
	got, gotMeta, err := Read(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(gotMeta, meta) {
		t.Errorf("metadata %v", gotMeta)
	}
	byName := map[string]Tensor{}
	for _, g := range got {
		byName[g.Name] = g
	}
	for _, want := range sample() {
		if !reflect.DeepEqual(byName[want.Name], want) {
			t.Errorf("%q: got %v, want %v", want.Name, byName[want.Name], want)
		}
	}
}

// TestWriteErrors checks that tensors with invalid shapes or repeated names are rejected.
func TestWriteErrors(t *testing.T) {
	for want, tensors := range map[string][]Tensor{
		"has 4 elements, the data 3":         {{"a", []int{2, 2}, make([]float32, 3)}},
		"the name is reserved or not unique": {{"a", []int{1}, make([]float32, 1)}, {"a", []int{1}, make([]float32, 1)}},
		"impossible shape":                   {{"a", []int{-1}, nil}},
	} {
		if err := Write(&bytes.Buffer{}, tensors, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestHostileFiles checks that invalid headers are rejected, with the position and the tensor.
func TestHostileFiles(t *testing.T) {
	one := `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}` // its data start at byte 62
	changed := func(old, new string) string { return strings.Replace(one, old, new, 1) }
	second := func(offsets string) string {
		return one[:len(one)-1] + `,"b":{"dtype":"F32","shape":[1],"data_offsets":` + offsets + `}}` // its data start at byte 115
	}
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"empty":             {nil, "at byte 0: read the header's length: unexpected end of data"},
		"length cut":        {make([]byte, 5), "at byte 5: read the header's length: unexpected end of data"},
		"header of 2^64-1":  {bytes.Repeat([]byte{0xff}, 8), "at byte 0: header of 18446744073709551615 bytes does not fit a file of 8 (the limit is 16777216)"},
		"header over file":  {file(one, nil)[:20], "at byte 0: header of 54 bytes does not fit a file of 20 (the limit is 16777216)"},
		"not JSON":          {file("hello", nil), "header: at byte 8: not a JSON object"},
		"cut JSON":          {file(one[:20], nil), `header: at byte 13: tensor "a": unexpected end of data`},
		"cut behind":        {file(one[:len(one)-1], make([]byte, 4)), "header: at byte 61: unexpected end of data"},
		"not a key":         {file(`{5:1}`, nil), "header: at byte 9: invalid character '5'"},
		"twice":             {file(one[:len(one)-1]+","+one[1:], make([]byte, 4)), `header: at byte 65: duplicate key "a"`},
		"trailing text":     {file(one+"{}", make([]byte, 4)), "header: at byte 62: unexpected data after the JSON object"},
		"not an entry":      {file(`{"a": 7}`, nil), `header: at byte 14: tensor "a": number, want an object`},
		"metadata":          {file(`{"__metadata__":{"k":1}}`, nil), "header: at byte 24: __metadata__: number, want an object of strings"},
		"type no string":    {file(changed(`"F32"`, "32"), make([]byte, 4)), `header: at byte 13: tensor "a": dtype: number, want a string`},
		"half an element":   {file(changed("[1]", "[2.5]"), make([]byte, 4)), `header: at byte 13: tensor "a": shape: number 2.5, want a list of integers`},
		"offsets no list":   {file(changed("[0,4]", `"0"`), make([]byte, 4)), `header: at byte 13: tensor "a": data_offsets: string, want two integers`},
		"unknown type":      {file(changed("F32", "F31"), make([]byte, 4)), `header: at byte 13: tensor "a": unknown type "F31"`},
		"half a byte":       {file(strings.Replace(changed("F32", "F4"), "[0,4]", "[0,1]", 1), make([]byte, 1)), `header: at byte 13: tensor "a": 1 elements of F4 do not fill whole bytes`},
		"other type":        {file(strings.Replace(changed("F32", "F16"), "[0,4]", "[0,2]", 1), make([]byte, 2)), `at byte 62: tensor "a" has type "F16", want F32`},
		"shape overflows":   {file(changed("[1]", "[4294967296,4294967296]"), make([]byte, 4)), `header: at byte 13: tensor "a": impossible shape [4294967296 4294967296]`},
		"negative shape":    {file(changed("[1]", "[-1]"), make([]byte, 4)), `header: at byte 13: tensor "a": impossible shape [-1]`},
		"negative offset":   {file(changed("[0,4]", "[-4,0]"), make([]byte, 4)), `header: at byte 13: tensor "a": data_offsets [-4 0] are not a valid range`},
		"data missing":      {file(one, make([]byte, 3)), `header: at byte 13: tensor "a": its data are the bytes 62 to 66, but the file has 65`},
		"offset of 2^63-1":  {file(changed("[0,4]", "[9223372036854775803,9223372036854775807]"), make([]byte, 4)), `the bytes 9223372036854775901 to 9223372036854775905, but the file has 102`},
		"shape and offsets": {file(changed("[1]", "[2]"), make([]byte, 4)), `header: at byte 13: tensor "a": its data are the bytes 62 to 66, which do not fit shape [2] of F32: 8 bytes`},
		"overlap":           {file(second("[2,6]"), make([]byte, 6)), `at byte 117: tensor "b" begins here, but the data before it end at byte 119`},
		"hole":              {file(changed("[0,4]", "[4,8]"), make([]byte, 8)), `at byte 66: tensor "a" begins here, but the data before it end at byte 62`},
		"data left over":    {file(one, make([]byte, 8)), "at byte 66: 4 bytes after the last tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Read(bytes.NewReader(tt.file), int64(len(tt.file)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v,\nwant %q", err, tt.want)
			}
		})
	}
	// The file is truncated after its size was determined.
	whole := file(one, make([]byte, 4))
	if _, _, err := Read(bytes.NewReader(whole[:64]), 66); err == nil || err.Error() != `read tensor "a": at byte 64: unexpected end of data` {
		t.Errorf("cut file: %v", err)
	}
}

// FuzzRead checks that the contents of a valid file survive a write and a read.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, sample(), map[string]string{"k": "v"}); err != nil {
		f.Fatal(err)
	}
	header, body := split(b.Bytes())
	f.Add(header, body)
	f.Add(`{}`, []byte{})
	f.Add(`{"__metadata__":{},"__metadata__":{}}`, []byte{})
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		data := file(header, body) // with the length that every file must have
		tensors, meta, err := Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := Write(&again, tensors, meta); err != nil {
			t.Fatal(err)
		}
		back, _, err := Read(bytes.NewReader(again.Bytes()), int64(again.Len()))
		if err != nil || len(back) != len(tensors) {
			t.Fatalf("read again: %v", err)
		}
	})
}
