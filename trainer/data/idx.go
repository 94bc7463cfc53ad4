package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// IDX is the format of MNIST's files: two zero bytes, a byte for the type of the values, a byte for
// the number of dimensions, each dimension as a big-endian 32-bit integer, then the values in
// row-major order.
const idxUnsignedByte = 0x08

// idxFile is an IDX file of unsigned bytes whose header has been read.
type idxFile struct {
	path   string
	in     *content
	header int   // bytes
	shape  []int // the first dimension counts samples
	size   int   // number of values, one byte each
}

// readIDXHeader reads the header of a file that must have this number of dimensions. It returns an
// error if the file cannot hold the values that its header announces: a plain file has exactly that
// size, a compressed one may expand only up to a limit.
func readIDXHeader(path string, in *content, dims int) (*idxFile, error) {
	f := &idxFile{path: path, in: in, size: 1}
	header := make([]byte, 4+4*dims)
	if n, err := io.ReadFull(in, header); err != nil {
		return nil, f.at(n, "header of %d bytes: %w", len(header), stripPath(err))
	}
	f.header = len(header)
	if header[0] != 0 || header[1] != 0 {
		return nil, f.at(0, "not an IDX file: begins with % x, want 00 00", header[:2])
	}
	if header[2] != idxUnsignedByte {
		return nil, f.at(2, "values of type 0x%02x, want 0x%02x (unsigned byte)", header[2], idxUnsignedByte)
	}
	if int(header[3]) != dims {
		return nil, f.at(3, "%d dimensions, want %d", header[3], dims)
	}
	for i := range dims {
		at := 4 + 4*i
		d := int(binary.BigEndian.Uint32(header[at:]))
		if d == 0 {
			return nil, f.at(at, "dimension %d is 0", i+1)
		}
		if i == 0 && d > random.MaxPerm {
			return nil, f.at(at, "%d samples, want at most %d", d, random.MaxPerm)
		}
		if d > maxValues/f.size {
			return nil, f.at(at, "more than %d values", maxValues)
		}
		f.shape = append(f.shape, d)
		f.size *= d
	}
	want := int64(f.header + f.size)
	switch {
	case in.size < 0:
		if err := in.checkSize(want); err != nil {
			return nil, f.at(4, "%w", err)
		}
	case in.size < want:
		return nil, f.at(int(in.size), "the file ends after %d of %d values", in.size-int64(f.header), f.size)
	case in.size > want:
		return nil, f.trailingError()
	}
	return f, nil
}

// at returns an error at a byte offset of the file.
func (f *idxFile) at(offset int, format string, args ...any) error {
	return fmt.Errorf("read %q: at byte %d: %w", f.path, offset, fmt.Errorf(format, args...))
}

func (f *idxFile) trailingError() error {
	return f.at(f.header+f.size, "bytes after the last of %d values", f.size)
}

// values reads the rest of the file.
func (f *idxFile) values() ([]byte, error) {
	values := make([]byte, f.size)
	for n := 0; n < len(values); {
		read, err := f.in.Read(values[n:])
		n += read
		switch {
		case n == len(values):
		case err == io.EOF:
			return nil, f.at(f.header+n, "the file ends after %d of %d values", n, f.size)
		case err != nil:
			return nil, f.at(f.header+n, "%w", stripPath(err))
		}
	}
	// Read one more byte, so that the checksum at the end of a gzip stream is verified.
	var extra [1]byte
	switch n, err := io.ReadFull(f.in, extra[:]); {
	case n > 0:
		return nil, f.trailingError()
	case !errors.Is(err, io.EOF):
		return nil, f.at(f.header+f.size, "%w", stripPath(err))
	}
	return values, nil
}
