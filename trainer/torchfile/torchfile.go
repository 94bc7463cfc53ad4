// Package torchfile writes tensors in the format of torch.save. PyTorch users open the file with
// torch.load(path, weights_only=True). It contains the state_dict of a model (an OrderedDict of CPU
// tensors), the state_dict of an optimizer, or any nested value of dicts, lists, tuples, numbers,
// strings, and tensors.
//
// The format is the one PyTorch has used since 1.6 (torch/serialization.py and
// caffe2/serialize/inline_container.h): a zip archive of uncompressed entries, with a pickle that
// describes the tensors and one entry for the bytes of each tensor, aligned to 64 bytes so that
// torch.load can map them (mmap=True).
//
// It guarantees that equal tensors give equal files, and that no tensor is held in memory. It does
// not read such files: package dcp reads the tensors of distributed checkpoints.
package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// Tensor is a named array.
type Tensor struct {
	Name  string
	DType safetensors.DType // "" is F32
	Shape []int
	Data  *io.SectionReader // row-major, little-endian; read twice
}

func (t Tensor) len() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

const (
	// rootDir is the directory that contains all entries. Readers use the directory of the first
	// entry.
	rootDir = "archive/"
	// version is the format version that PyTorch 1.6 and later read.
	version = "3\n"
	// alignment is the alignment of tensors in the file. The padding is in the extra field that
	// PyTorch writes: two letters, the length of the padding, the padding.
	alignment  = 64
	extraHead  = 4
	localHead  = 30
	extraField = "FB"
)

// width returns the size of an element in bytes.
func (t Tensor) width() int64 {
	if t.DType == "" {
		return int64(safetensors.F32.Size())
	}
	return int64(t.DType.Size())
}

// Write writes the tensors in their order. Names are as in a state_dict.
func Write(w io.Writer, tensors []Tensor) error {
	var p pickle
	p.stateDict(tensors)
	return write(w, p, tensors)
}

// write writes a pickle and the tensors that it refers to by index.
func write(w io.Writer, p pickle, tensors []Tensor) error {
	a := &archive{out: counter{w: w}}
	a.zip = zip.NewWriter(&a.out)
	if err := a.text("data.pkl", p.out); err != nil {
		return err
	}
	if err := a.text("byteorder", []byte("little")); err != nil {
		return err
	}
	for i, t := range tensors {
		if have, want := t.Data.Size(), t.width()*t.len(); have != want {
			return fmt.Errorf("tensor %q of shape %v has %d bytes, want %d", t.Name, t.Shape, have, want)
		}
		if err := a.entry("data/"+strconv.Itoa(i), t.Data); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	if err := a.text("version", []byte(version)); err != nil {
		return err
	}
	return a.zip.Close()
}

// archive writes entries with size and checksum before the data, as PyTorch does.
type archive struct {
	out counter
	zip *zip.Writer
}

func (a *archive) text(name string, content []byte) error {
	return a.entry(name, section(content))
}

func (a *archive) entry(name string, content *io.SectionReader) error {
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(content, 0, content.Size())); err != nil {
		return err
	}
	if err := a.zip.Flush(); err != nil { // so that out.n is the offset of the entry
		return err
	}
	name = rootDir + name
	w, err := a.zip.CreateRaw(&zip.FileHeader{
		Name: name, Method: zip.Store, Extra: padding(a.out.n, len(name)),
		CRC32: sum.Sum32(), CompressedSize64: uint64(content.Size()), UncompressedSize64: uint64(content.Size()),
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, io.NewSectionReader(content, 0, content.Size()))
	return err
}

// padding returns the extra field that aligns the content of an entry at the given offset, with a
// name of the given length.
func padding(at int64, name int) []byte {
	n := int(alignment - (at+localHead+int64(name)+extraHead)%alignment)
	extra := append([]byte(extraField), 0, 0)
	binary.LittleEndian.PutUint16(extra[2:], uint16(n))
	for range n {
		extra = append(extra, 'Z')
	}
	return extra
}

// counter counts the bytes written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func section(content []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content)))
}
