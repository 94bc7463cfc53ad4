package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// IDX is the format of MNIST's files: two zero bytes, a byte for the type of the
// values, a byte for the number of dimensions, each dimension as a big-endian
// 32-bit number, then the values in row-major order.
const (
	idxUnsignedByte = 0x08
	idxFirstRead    = 1 << 24 // bytes to make room for before any have been seen
)

// readIDX reads a whole IDX file of unsigned bytes with the given number of
// dimensions, the first of which counts samples. Memory grows with what is
// really there, not with what the header claims.
func readIDX(name string, r io.Reader, dims int) (shape []int, values []byte, err error) {
	fail := func(offset int, format string, args ...any) error {
		return fmt.Errorf("read %q: at byte %d: %w", name, offset, fmt.Errorf(format, args...))
	}
	header := make([]byte, 4+4*dims)
	if n, err := io.ReadFull(r, header); err != nil {
		return nil, nil, fail(n, "header of %d bytes: %w", len(header), cause(err))
	}
	if header[0] != 0 || header[1] != 0 {
		return nil, nil, fail(0, "not an IDX file: begins with % x, want 00 00", header[:2])
	}
	if header[2] != idxUnsignedByte {
		return nil, nil, fail(2, "values of type 0x%02x, want 0x%02x (unsigned byte)", header[2], idxUnsignedByte)
	}
	if int(header[3]) != dims {
		return nil, nil, fail(3, "%d dimensions, want %d", header[3], dims)
	}
	size := 1
	for i := range dims {
		at := 4 + 4*i
		d := int(binary.BigEndian.Uint32(header[at:]))
		if d == 0 {
			return nil, nil, fail(at, "dimension %d is 0", i+1)
		}
		if i == 0 && d > random.MaxPerm {
			return nil, nil, fail(at, "%d samples, want at most %d", d, random.MaxPerm)
		}
		if d > maxValues/size {
			return nil, nil, fail(at, "more than %d values", maxValues)
		}
		shape = append(shape, d)
		size *= d
	}
	var body bytes.Buffer
	body.Grow(min(size, idxFirstRead))
	n, err := body.ReadFrom(io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, nil, fail(len(header)+int(n), "%w", cause(err))
	}
	if int(n) < size {
		return nil, nil, fail(len(header)+int(n), "the file ends after %d of %d values", n, size)
	}
	// One more byte, so that a checksum at the end of a gzip stream is checked.
	var extra [1]byte
	switch n, err := io.ReadFull(r, extra[:]); {
	case n > 0:
		return nil, nil, fail(len(header)+size, "bytes after the last of %d values", size)
	case !errors.Is(err, io.EOF):
		return nil, nil, fail(len(header)+size, "%w", cause(err))
	}
	return shape, body.Bytes(), nil
}
