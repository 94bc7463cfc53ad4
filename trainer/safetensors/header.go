package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// entry is a tensor's entry in the header.
type entry struct {
	DType   DType    `json:"dtype"`
	Shape   shape    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// A shape is decoded one dimension at a time: a header of a few megabytes could have millions.
type shape []int

func (s *shape) UnmarshalJSON(text []byte) error {
	if n := 1 + bytes.Count(text, []byte(",")); n > maxDims {
		return fmt.Errorf("shape of %d dimensions, want at most %d", n, maxDims)
	}
	return json.Unmarshal(text, (*[]int)(s))
}

// ReadHeader reads the header of a file of size bytes from r. It returns the arrays, in the order
// of their data, and the metadata. Errors contain the byte offset in the file: of the tensor's
// entry in the header, or of the data.
func ReadHeader(r io.Reader, size int64) ([]Array, map[string]string, error) {
	var length [8]byte
	if n, err := io.ReadFull(r, length[:]); err != nil {
		return nil, nil, fmt.Errorf("at byte %d: read the header's length: %w", n, describeEOF(err))
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, nil, fmt.Errorf("at byte 0: header of %d bytes does not fit a file of %d (the limit is %d)", n, size, maxHeader)
	}
	text := make([]byte, n)
	if n, err := io.ReadFull(r, text); err != nil {
		return nil, nil, fmt.Errorf("at byte %d: read the header: %w", 8+n, describeEOF(err))
	}
	arrays, metadata, err := parseHeader(text, size)
	if err != nil {
		return nil, nil, err
	}
	if err := layOut(arrays, 8+int64(n), size); err != nil {
		return nil, nil, err
	}
	return arrays, metadata, nil
}

// parseHeader parses the header key by key, because a JSON decoder that fills a map hides duplicate
// names. size is the size of the file in bytes.
func parseHeader(text []byte, size int64) (arrays []Array, metadata map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	at := 0 // offset in text of the value being read
	defer func() {
		if err != nil {
			err = fmt.Errorf("header: at byte %d: %w", 8+at, err)
		}
	}()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("not a JSON object")
	}
	known := map[string]bool{}
	for d.More() {
		at = int(d.InputOffset())
		t, err := d.Token()
		if err != nil {
			return nil, nil, describeEOF(err)
		}
		at = int(d.InputOffset())
		name := t.(string) // keys of an object are strings, or Token fails
		if known[name] {
			return nil, nil, fmt.Errorf("duplicate key %q", name)
		}
		known[name] = true
		at += len(text[at:]) - len(bytes.TrimLeft(text[at:], ": \t\r\n"))
		if name == metadataKey {
			if err := d.Decode(&metadata); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", metadataKey, decodeError(err, "an object of strings"))
			}
			continue
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, decodeError(err, "an object"))
		}
		a, err := e.array(name, 8+int64(len(text)), size)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		arrays = append(arrays, a)
	}
	at = int(d.InputOffset())
	if _, err := d.Token(); err != nil {
		return nil, nil, describeEOF(err)
	}
	at = int(d.InputOffset())
	if len(bytes.Trim(text[at:], " ")) > 0 {
		return nil, nil, errors.New("unexpected data after the JSON object")
	}
	return arrays, metadata, nil
}

// describeEOF replaces Go's end-of-file errors by a message for users.
func describeEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("unexpected end of data")
	}
	return err
}

// decodeError describes a value of the wrong JSON type. object describes the expected object.
func decodeError(err error, object string) error {
	t, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return describeEOF(err)
	}
	switch field, _, _ := strings.Cut(t.Field, "."); field {
	case "dtype":
		return fmt.Errorf("dtype: %s, want a string", t.Value)
	case "shape":
		return fmt.Errorf("shape: %s, want a list of integers", t.Value)
	case "data_offsets":
		return fmt.Errorf("data_offsets: %s, want two integers", t.Value)
	}
	return fmt.Errorf("%s, want %s", t.Value, object)
}

// array returns e as an array, in a file of size bytes whose data start at offset begin.
func (e entry) array(name string, begin, size int64) (Array, error) {
	if e.DType.bits() == 0 {
		return Array{}, fmt.Errorf("unknown type %q", e.DType)
	}
	n, err := elements(e.Shape)
	if err != nil {
		return Array{}, err
	}
	from, to := e.Offsets[0], e.Offsets[1]
	switch {
	case from < 0 || to < from:
		return Array{}, fmt.Errorf("data_offsets %d are not a valid range", e.Offsets)
	case to > size-begin: // the sum below could overflow 63 bits
		return Array{}, fmt.Errorf("its data are the bytes %d to %d, but the file has %d", uint64(begin)+uint64(from), uint64(begin)+uint64(to), size)
	case n%8*int64(e.DType.bits())%8 != 0:
		return Array{}, fmt.Errorf("%d elements of %s do not fill whole bytes", n, e.DType)
	case to-from != e.DType.byteSize(n):
		return Array{}, fmt.Errorf("its data are the bytes %d to %d, which do not fit shape %v of %s: %d bytes", begin+from, begin+to, e.Shape, e.DType, e.DType.byteSize(n))
	}
	return Array{name, e.DType, e.Shape, begin + from, begin + to}, nil
}

// layOut sorts the arrays by the position of their data, and returns an error if the data overlap
// or do not cover the file from offset begin to its end.
func layOut(arrays []Array, begin, size int64) error {
	// An empty tensor may share its offset with the next one.
	slices.SortStableFunc(arrays, func(a, b Array) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	at := begin
	for _, a := range arrays {
		if a.Begin != at {
			return fmt.Errorf("at byte %d: tensor %q begins here, but the data before it end at byte %d", a.Begin, a.Name, at)
		}
		at = a.End
	}
	if at != size {
		return fmt.Errorf("at byte %d: %d bytes after the last tensor", at, size-at)
	}
	return nil
}

// elements returns the number of elements of a shape, or an error if it overflows.
func elements(shape []int) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || (d > 0 && n > math.MaxInt64/8/int64(d)) {
			return 0, fmt.Errorf("impossible shape %v", shape)
		}
		n *= int64(d)
	}
	return n, nil
}
