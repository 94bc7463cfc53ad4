// Package safetensors reads and writes tensors in the safetensors format
// (https://huggingface.co/docs/safetensors): eight bytes of header length, a JSON
// header, raw little-endian data. PyTorch users open such files with
// safetensors.torch.load_file.
//
// [Read] and [Write] are for whole files of float32. [ReadHeader] says what any
// file holds, and an [Array] of it is read alone: as bytes, or with the types of
// fewer bits converted to float32, those of integers to int64.
//
// It promises that a hostile file costs bounded memory and is refused with what
// is wrong: sizes are checked before anything is allocated; names that repeat,
// data that overlaps, leaves holes or runs past the end are errors.
//
// It does not write other types than F32, does not checksum (package checkpoint
// does) and does not sync files to disk.
package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"unsafe"
)

const (
	// maxHeader limits the header, in bytes. Parsing takes up to 15 times as much memory. The
	// format allows 100 MB, but 16 MiB hold 100,000 tensors with names of 100 characters.
	maxHeader = 16 << 20
	// maxDims limits the dimensions of a tensor. Those of models have at most 5.
	maxDims = 16
	// metadataKey holds free text pairs instead of a tensor.
	metadataKey = "__metadata__"
	alignment   = 8
)

// Tensor is a named array of float32 in row-major order.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// Bytes is the tensor's data as a file holds them, the memory itself.
func (t Tensor) Bytes() []byte { return memory(t.Data) }

// Write writes tensors, sorted by name, with metadata (which may be nil). The header is
// what the first call of w.Write gets.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	sorted := slices.Clone(tensors)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
	for _, t := range sorted {
		if n, err := elements(t.Shape); err == nil && int64(len(t.Data)) != n {
			return fmt.Errorf("write tensor %q: shape %v has %d elements, the data %d", t.Name, t.Shape, n, len(t.Data))
		}
	}
	header, err := Header(sorted, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range sorted {
		if _, err := w.Write(t.Bytes()); err != nil {
			return fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// Header is what a file begins with in which the data of tensors follow in this order.
// Their Data are not looked at.
func Header(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	header := map[string]any{}
	if len(metadata) > 0 {
		header[metadataKey] = metadata
	}
	var offset int64
	for _, t := range tensors {
		n, err := elements(t.Shape)
		if err != nil {
			return nil, fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
		if _, repeated := header[t.Name]; repeated || t.Name == metadataKey {
			return nil, fmt.Errorf("write tensor %q: the name is taken", t.Name)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		header[t.Name] = entry{F32, shape, [2]int64{offset, offset + 4*n}}
		offset += 4 * n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("write header: %w", err)
	}
	for len(text)%alignment != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("write header: %d bytes are over the limit of %d", len(text), maxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// Read reads a file of size bytes from r, all of whose tensors must be F32. They
// come in the order of their data.
func Read(r io.Reader, size int64) ([]Tensor, map[string]string, error) {
	arrays, metadata, err := ReadHeader(r, size)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range arrays {
		if a.DType != F32 {
			return nil, nil, fmt.Errorf("at byte %d: tensor %q has type %q, want %s", a.Begin, a.Name, a.DType, F32)
		}
	}
	tensors := make([]Tensor, len(arrays))
	for i, a := range arrays {
		tensors[i] = Tensor{a.Name, a.Shape, make([]float32, a.Len())}
		if n, err := io.ReadFull(r, memory(tensors[i].Data)); err != nil {
			return nil, nil, fmt.Errorf("read tensor %q: at byte %d: %w", a.Name, a.Begin+int64(n), inWords(err))
		}
	}
	return tensors, metadata, nil
}

// memory is the bytes of v; amd64 and arm64 are little-endian, as the format is.
func memory(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}
