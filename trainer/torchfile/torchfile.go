// Package torchfile writes tensors as a file of torch.save, which PyTorch users open
// with torch.load(path, weights_only=True): the state_dict of a model, an OrderedDict of
// float32 tensors on the CPU by name, or that of an optimizer.
//
// The format is that of PyTorch since 1.6 (torch/serialization.py and
// caffe2/serialize/inline_container.h): a zip archive of uncompressed entries, a
// pickle that describes the tensors, and the bytes of each in an entry of its own,
// 64-byte aligned so that torch.load can map them (mmap=True).
//
// It promises that the same tensors give the same bytes, and that no tensor is held in
// memory. It does not read such files: a pickle is a program.
package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
)

// Tensor is a named array of float32.
type Tensor struct {
	Name  string
	Shape []int
	Data  *io.SectionReader // row-major, little-endian, 4 bytes an element; read twice
}

func (t Tensor) len() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

const (
	// folder is what every entry is in; readers take the first entry's.
	folder = "archive/"
	// version is that of the format that every PyTorch from 1.6 on reads.
	version = "3\n"
	// alignment is that of tensors' bytes in the file, by padding in the extra field
	// that PyTorch writes: two letters, the padding's length, the padding.
	alignment  = 64
	extraHead  = 4
	localHead  = 30
	extraField = "FB"
)

// Write writes the tensors in their order. Names are as in a state_dict.
func Write(w io.Writer, tensors []Tensor) error {
	var p pickle
	p.stateDict(tensors)
	return write(w, p, tensors)
}

// write writes a pickle and the tensors that it numbers.
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
		if have, want := t.Data.Size(), 4*t.len(); have != want {
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

// archive writes entries whose size and checksum stand before them, as PyTorch does.
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
	if err := a.zip.Flush(); err != nil { // so that out.n is where the entry begins
		return err
	}
	name = folder + name
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

// padding is the extra field by which the content of an entry that begins at a byte of
// the file is aligned.
func padding(at int64, name int) []byte {
	n := int(alignment - (at+localHead+int64(name)+extraHead)%alignment)
	extra := append([]byte(extraField), 0, 0)
	binary.LittleEndian.PutUint16(extra[2:], uint16(n))
	for range n {
		extra = append(extra, 'Z')
	}
	return extra
}

// counter counts what is written.
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
