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

// entry is what the header says of a tensor.
type entry struct {
	DType   DType    `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// ReadHeader reads the beginning of a file of size bytes from r and returns what
// the file holds, in the order of the data, and its metadata.
func ReadHeader(r io.Reader, size int64) ([]Array, map[string]string, error) {
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, nil, fmt.Errorf("at byte 0: read header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, nil, fmt.Errorf("at byte 0: header of %d bytes does not fit a file of %d (the format's limit is %d)", n, size, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, nil, fmt.Errorf("at byte 8: read header: %w", err)
	}
	arrays, metadata, err := parseHeader(text)
	if err != nil {
		return nil, nil, err
	}
	if err := layOut(arrays, 8+int64(n), size); err != nil {
		return nil, nil, err
	}
	return arrays, metadata, nil
}

// parseHeader goes through the header key by key, because a JSON decoder that
// fills a map hides names that repeat. Begin and End of the arrays count from the
// end of the header yet.
func parseHeader(text []byte) (arrays []Array, metadata map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	defer func() {
		if err != nil {
			err = fmt.Errorf("header: at byte %d: %w", 8+d.InputOffset(), err)
		}
	}()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("not a JSON object")
	}
	known := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		name := t.(string) // keys of an object are strings, or Token fails
		if known[name] {
			return nil, nil, fmt.Errorf("%q stands there twice", name)
		}
		known[name] = true
		if name == metadataKey {
			if err := d.Decode(&metadata); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", metadataKey, err)
			}
			continue
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		arrays = append(arrays, Array{name, e.DType, e.Shape, e.Offsets[0], e.Offsets[1]})
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	if rest := strings.Trim(string(text[d.InputOffset():]), " "); rest != "" {
		return nil, nil, errors.New("there is something behind the JSON object")
	}
	return arrays, metadata, nil
}

// layOut sorts the arrays by their data, has them follow each other without
// overlap or hole and fill the file exactly, and makes their places those in the
// file, whose data begin at the given byte.
func layOut(arrays []Array, begin, size int64) error {
	// An empty tensor may share its offset with the next one.
	slices.SortStableFunc(arrays, func(a, b Array) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	at, end := int64(0), size-begin
	for i := range arrays {
		a := &arrays[i]
		width := a.DType.Size()
		if width == 0 {
			return fmt.Errorf("tensor %q has the unknown type %q", a.Name, a.DType)
		}
		n, err := elements(a.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", a.Name, err)
		}
		if a.Begin != at || a.End-a.Begin != int64(width)*n || a.End > end {
			return fmt.Errorf("tensor %q: bytes %d to %d of %d do not fit shape %v of %s behind the tensor before it",
				a.Name, a.Begin, a.End, end, a.Shape, a.DType)
		}
		at = a.End
		a.Begin, a.End = begin+a.Begin, begin+a.End
	}
	if at != end {
		return fmt.Errorf("the tensors end at byte %d of %d", at, end)
	}
	return nil
}

// elements is the number of elements of a shape, or an error if it overflows.
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
