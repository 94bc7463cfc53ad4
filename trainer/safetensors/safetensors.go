// Package safetensors reads and writes float32 tensors in the safetensors
// format (https://huggingface.co/docs/safetensors): eight bytes of header
// length, a JSON header, raw little-endian data. PyTorch users open such files
// with safetensors.torch.load_file.
//
// It promises that a hostile file costs bounded memory and is refused with what
// is wrong: sizes are checked before anything is allocated; names that repeat,
// data that overlaps, leaves holes or runs past the end are errors.
//
// It does not know other element types than F32, does not checksum (package
// checkpoint does) and does not sync files to disk.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
	"unsafe"
)

const (
	// maxHeader is the format's own limit on the header, in bytes.
	maxHeader = 100_000_000
	// metadataKey holds free text pairs instead of a tensor.
	metadataKey = "__metadata__"
	dtype       = "F32"
	alignment   = 8
)

// Tensor is a named array of float32 in row-major order.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Write writes tensors, sorted by name, with metadata (which may be nil).
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	sorted := slices.Clone(tensors)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
	header := map[string]any{}
	if len(metadata) > 0 {
		header[metadataKey] = metadata
	}
	var offset int64
	for _, t := range sorted {
		n, err := elements(t.Shape)
		if err != nil {
			return fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
		if int64(len(t.Data)) != n {
			return fmt.Errorf("write tensor %q: shape %v has %d elements, the data %d", t.Name, t.Shape, n, len(t.Data))
		}
		if _, repeated := header[t.Name]; repeated || t.Name == metadataKey {
			return fmt.Errorf("write tensor %q: the name is taken", t.Name)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		header[t.Name] = entry{dtype, shape, [2]int64{offset, offset + 4*n}}
		offset += 4 * n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for len(text)%alignment != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return fmt.Errorf("write header: %d bytes are over the format's limit of %d", len(text), maxHeader)
	}
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(text)))
	for _, b := range [][]byte{size[:], text} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	for _, t := range sorted {
		if _, err := w.Write(memory(t.Data)); err != nil {
			return fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// Read reads a file of size bytes from r. The tensors come in the order of their
// data.
func Read(r io.Reader, size int64) ([]Tensor, map[string]string, error) {
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, nil, fmt.Errorf("read header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, nil, fmt.Errorf("header of %d bytes does not fit a file of %d (the format's limit is %d)", n, size, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, nil, fmt.Errorf("read header: %w", err)
	}
	names, entries, metadata, err := parseHeader(text)
	if err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	if err := checkLayout(names, entries, size-8-int64(n)); err != nil {
		return nil, nil, err
	}
	tensors := make([]Tensor, len(names))
	for i, name := range names {
		e := entries[name]
		tensors[i] = Tensor{name, e.Shape, make([]float32, (e.Offsets[1]-e.Offsets[0])/4)}
		if _, err := io.ReadFull(r, memory(tensors[i].Data)); err != nil {
			return nil, nil, fmt.Errorf("read tensor %q: %w", name, err)
		}
	}
	return tensors, metadata, nil
}

// parseHeader goes through the header key by key, because a JSON decoder that
// fills a map hides names that repeat.
func parseHeader(text []byte) ([]string, map[string]entry, map[string]string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, nil, errors.New("not a JSON object")
	}
	var names []string
	entries := map[string]entry{}
	var metadata map[string]string
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, nil, err
		}
		name := t.(string) // keys of an object are strings, or Token fails
		if name == metadataKey {
			if metadata != nil {
				return nil, nil, nil, fmt.Errorf("%s stands there twice", metadataKey)
			}
			if err := d.Decode(&metadata); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", metadataKey, err)
			}
			continue
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		if _, repeated := entries[name]; repeated {
			return nil, nil, nil, fmt.Errorf("tensor %q stands there twice", name)
		}
		names = append(names, name)
		entries[name] = e
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, nil, err
	}
	if rest := strings.Trim(string(text[d.InputOffset():]), " "); rest != "" {
		return nil, nil, nil, errors.New("there is something behind the JSON object")
	}
	sort.SliceStable(names, func(i, j int) bool { return entries[names[i]].Offsets[0] < entries[names[j]].Offsets[0] })
	return names, entries, metadata, nil
}

// checkLayout has the tensors follow each other without overlap or hole and fill
// the data exactly.
func checkLayout(names []string, entries map[string]entry, size int64) error {
	var at int64
	// An empty tensor may share its offset with the next one.
	sort.SliceStable(names, func(i, j int) bool {
		a, b := entries[names[i]].Offsets, entries[names[j]].Offsets
		return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
	})
	for _, name := range names {
		e := entries[name]
		if e.DType != dtype {
			return fmt.Errorf("tensor %q has type %q; this program reads %s", name, e.DType, dtype)
		}
		n, err := elements(e.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		if e.Offsets[0] != at || e.Offsets[1]-e.Offsets[0] != 4*n || e.Offsets[1] > size {
			return fmt.Errorf("tensor %q: bytes %d to %d of %d do not fit shape %v behind the tensor before it",
				name, e.Offsets[0], e.Offsets[1], size, e.Shape)
		}
		at = e.Offsets[1]
	}
	if at != size {
		return fmt.Errorf("the tensors end at byte %d of %d", at, size)
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

// memory is the bytes of v; amd64 and arm64 are little-endian, as the format is.
func memory(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}
