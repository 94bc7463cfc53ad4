package safetensors

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
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

func TestWriteRefuses(t *testing.T) {
	for want, tensors := range map[string][]Tensor{
		"has 4 elements, the data 3": {{"a", []int{2, 2}, make([]float32, 3)}},
		"the name is taken":          {{"a", []int{1}, make([]float32, 1)}, {"a", []int{1}, make([]float32, 1)}},
		"impossible shape":           {{"a", []int{-1}, nil}},
	} {
		if err := Write(&bytes.Buffer{}, tensors, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestHostileFiles(t *testing.T) {
	one := `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"empty":             {nil, "read header length"},
		"header of 2^64-1":  {bytes.Repeat([]byte{0xff}, 8), "does not fit"},
		"header over file":  {file(one, nil)[:20], "does not fit"},
		"not JSON":          {file("hello", nil), "not a JSON object"},
		"cut JSON":          {file(one[:20], nil), "header"},
		"data missing":      {file(one, make([]byte, 3)), "bytes 0 to 4 of 3"},
		"data left over":    {file(one, make([]byte, 8)), "end at byte 4 of 8"},
		"twice":             {file(one[:len(one)-1]+","+one[1:], make([]byte, 4)), "twice"},
		"overlap":           {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, make([]byte, 6)), `tensor "b"`},
		"hole":              {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, make([]byte, 8)), `tensor "a"`},
		"unknown type":      {file(strings.Replace(one, "F32", "F31", 1), make([]byte, 4)), "unknown type"},
		"other type":        {file(strings.Replace(strings.Replace(one, "F32", "F16", 1), "[0,4]", "[0,2]", 1), make([]byte, 2)), "want F32"},
		"shape overflows":   {file(strings.Replace(one, "[1]", "[4294967296,4294967296]", 1), make([]byte, 4)), "impossible shape"},
		"negative shape":    {file(strings.Replace(one, "[1]", "[-1]", 1), make([]byte, 4)), "impossible shape"},
		"trailing text":     {file(one+"{}", make([]byte, 4)), "behind"},
		"shape and offsets": {file(strings.Replace(one, "[1]", "[2]", 1), make([]byte, 4)), "do not fit shape"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Read(bytes.NewReader(tt.file), int64(len(tt.file)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzRead: whatever is read writes and reads back the same.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, sample(), map[string]string{"k": "v"}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(file(`{}`, nil))
	f.Add(file(`{"__metadata__":{},"__metadata__":{}}`, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
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
