// Package safetensors reads and writes tensors in the safetensors format
// (https://huggingface.co/docs/safetensors): an 8-byte header length, a JSON header, and raw
// little-endian data. PyTorch users open such files with safetensors.torch.load_file.
//
// [Read] and [Write] handle whole files of float32. [ReadHeader] returns the contents of any file
// as a list of [Array], which can be read separately: as bytes, as float32 (F32, F16, BF16, and U8),
// or as int64 (I64, I32, and U8). [ArrayHeader] returns the header of a file of any types of whole
// bytes.
//
// It guarantees that a hostile file needs bounded memory and is rejected with a specific error.
// Sizes are checked before memory is allocated. Duplicate names, and data that overlap, have gaps,
// or exceed the file are errors.
//
// It computes no checksums (package checkpoint does), and does not sync files to disk.
package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unsafe"
)

const (
	// maxHeader is the maximum size of the header in bytes. Parsing needs up to 15 times as much
	// memory. The format allows 100 MB, but 16 MiB hold 100,000 tensors with names of 100
	// characters.
	maxHeader = 16 << 20
	// maxDims is the maximum number of dimensions of a tensor. Tensors of models have at most 5.
	maxDims = 16
	// metadataKey is the key of the metadata, pairs of strings, instead of a tensor.
	metadataKey = "__metadata__"
	alignment   = 8
)

// Tensor is a named array of float32 in row-major order.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// Bytes returns the tensor's memory as bytes, in the format of a file.
func (t Tensor) Bytes() []byte { return memory(t.Data) }

// Write writes tensors, sorted by name, with metadata (which may be nil). The first call of w.Write
// gets the whole header.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
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

// Header returns the header of a file with these tensors, whose data follow in this order. It does
// not read their Data.
func Header(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	arrays := make([]Array, len(tensors))
	for i, t := range tensors {
		arrays[i] = Array{Name: t.Name, DType: F32, Shape: t.Shape}
	}
	return ArrayHeader(arrays, metadata)
}

// ArrayHeader returns the header of a file with these arrays, whose data follow in this order. It
// uses their names, types, and shapes. Elements must have whole bytes. If larger types precede
// smaller ones, all data are aligned.
func ArrayHeader(arrays []Array, metadata map[string]string) ([]byte, error) {
	header := map[string]any{}
	if len(metadata) > 0 {
		header[metadataKey] = metadata
	}
	var offset int64
	for _, a := range arrays {
		n, err := elements(a.Shape)
		if err != nil {
			return nil, fmt.Errorf("write tensor %q: %w", a.Name, err)
		}
		if _, repeated := header[a.Name]; repeated || a.Name == metadataKey {
			return nil, fmt.Errorf("write tensor %q: the name is reserved or not unique", a.Name)
		}
		shape := a.Shape
		if shape == nil {
			shape = []int{}
		}
		size := n * int64(a.DType.Size())
		header[a.Name] = entry{a.DType, shape, [2]int64{offset, offset + size}}
		offset += size
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

// Read reads a file of size bytes from r. All tensors must be F32. It returns them in the order of
// their data.
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
			return nil, nil, fmt.Errorf("read tensor %q: at byte %d: %w", a.Name, a.Begin+int64(n), describeEOF(err))
		}
	}
	return tensors, metadata, nil
}

// memory returns the bytes of v. amd64 and arm64 are little-endian, like the format.
func memory(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}
