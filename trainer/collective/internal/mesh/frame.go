package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is 64 bytes and at most MaxSegment more: class, kind, type, operation, root
// (4), group (8), sequence (8), step (4), segment (4), bytes of the operation (8),
// length of the payload (4), 16 zero bytes, CRC-32 of all before it. The payload has
// TCP's checksum only, as with other libraries: another pass over it would cost a fifth
// of the time.
const (
	frameHead = 64
	sumAt     = frameHead - 4
)

// class is what a frame is for.
type class byte

const (
	classOperation class = iota + 1
	classDirect
	classAbort // root is the rank that is the cause, step the one who says so, the payload why
)

// maxReason bounds the text of an abort.
const maxReason = 1024

type frame struct {
	class class
	Head
	size int
}

var errDamaged = errors.New("the head of a message arrived damaged (CRC-32 does not match)")

func (f *frame) encode(b *[frameHead]byte, size int) {
	*b = [frameHead]byte{byte(f.class), f.Kind, f.Type, f.Op}
	order := binary.LittleEndian
	order.PutUint32(b[4:], uint32(f.Root))
	order.PutUint64(b[8:], f.Group)
	order.PutUint64(b[16:], f.Sequence)
	order.PutUint32(b[24:], f.Step)
	order.PutUint32(b[28:], f.Segment)
	order.PutUint64(b[32:], f.Bytes)
	order.PutUint32(b[40:], uint32(size))
	order.PutUint32(b[sumAt:], crc32.ChecksumIEEE(b[:sumAt]))
}

func (f *frame) decode(b *[frameHead]byte) error {
	order := binary.LittleEndian
	if crc32.ChecksumIEEE(b[:sumAt]) != order.Uint32(b[sumAt:]) {
		return errDamaged
	}
	*f = frame{class: class(b[0]), size: int(order.Uint32(b[40:])), Head: Head{
		Key: Key{Group: order.Uint64(b[8:]), Sequence: order.Uint64(b[16:]), Step: order.Uint32(b[24:]),
			Segment: order.Uint32(b[28:]), Direct: class(b[0]) == classDirect},
		Signature: Signature{Kind: b[1], Type: b[2], Op: b[3], Root: int32(order.Uint32(b[4:])), Bytes: order.Uint64(b[32:])},
	}}
	limit := MaxSegment
	if f.class == classAbort {
		limit = maxReason
	}
	if f.class < classOperation || f.class > classAbort {
		return fmt.Errorf("a message of unknown class %d came", f.class)
	}
	if f.size > limit {
		return fmt.Errorf("a message of %d bytes came, over the limit of %d", f.size, limit)
	}
	return nil
}

// readFrame reads one frame; room is asked where its payload goes, and may refuse it.
// io.EOF means that the peer closed the connection between frames.
func readFrame(r io.Reader, room func(*frame) ([]byte, error)) (*frame, error) {
	var b [frameHead]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, err
	}
	f := new(frame)
	if err := f.decode(&b); err != nil {
		return nil, err
	}
	payload, err := room(f)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return f, nil
}
