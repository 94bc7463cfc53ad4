package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/crc32c"
)

// A frame has a head of 64 bytes and a payload of at most MaxSegment bytes. The head consists of
// class, kind, type, operation, root (4), group (8), sequence (8), step (4), segment (4), size of
// the operation's buffer (8), length of the payload (4), CRC-32C of the payload (4), frame number
// on the connection (4), mark of the connection (8), and CRC-32C of all preceding fields (4). Sizes
// are in bytes, 1 if not given.
//
// On a connection with tags, the head has 32 more bytes, and the two CRCs are 0: the tag of the
// payload, and the tag of all preceding fields.
const (
	frameHead = 64
	sumAt     = frameHead - 4

	taggedHead   = frameHead + 2*tagSize
	payloadTagAt = frameHead
	headTagAt    = payloadTagAt + tagSize
)

// class is the purpose of a frame.
type class byte

const (
	classOperation class = iota + 1
	classDirect
	classAbort // root is the failed rank, step the rank that reports it, and the payload the reason
	classQuery // group is the group of the query, sequence the number of the query
)

// maxReason is the maximum length of an abort message in bytes.
const maxReason = 1024

type frame struct {
	class class
	Head
	size int
	sum  uint32 // of the payload
}

// An integrityError is the error of a message that arrived altered, repeated, or incomplete.
type integrityError struct{ text, hint string }

func (e integrityError) Error() string { return e.text }

// ExitCode returns the exit code for a lost rank: the job is not at fault, and training
// resumes from the last checkpoint.
func (integrityError) ExitCode() int { return exitcode.Lost }

// Hint returns the fix.
func (e integrityError) Hint() string { return e.hint }

// corrupt returns the error of an invalid message on a connection with CRCs.
func corrupt(format string, args ...any) error {
	return integrityError{fmt.Sprintf(format, args...), "the network between the two nodes, or the memory of one of them, altered data, and TCP did not detect it: ask the administrators to test both, and restart the job to resume from the last checkpoint; [restart] max_without_progress starts the ranks again automatically"}
}

// stream is the state of one direction of a connection. Only the two ends have its mark, so a frame
// of a different connection is not accepted.
type stream struct {
	mark uint64
	next uint32  // number of the next frame
	tags *tagger // nil on a connection with CRCs
}

// headSize returns the number of bytes before the payload.
func (at *stream) headSize() int {
	if at.tags != nil {
		return taggedHead
	}
	return frameHead
}

// encode stores the head of the next frame in b and returns it.
func (at *stream) encode(f *frame, b *[taggedHead]byte, payload []byte) []byte {
	*b = [taggedHead]byte{byte(f.class), f.Kind, f.Type, f.Op}
	order := binary.LittleEndian
	order.PutUint32(b[4:], uint32(f.Root))
	order.PutUint64(b[8:], f.Group)
	order.PutUint64(b[16:], f.Sequence)
	order.PutUint32(b[24:], f.Step)
	order.PutUint32(b[28:], f.Segment)
	order.PutUint64(b[32:], f.Bytes)
	order.PutUint32(b[40:], uint32(len(payload)))
	order.PutUint32(b[48:], at.next)
	order.PutUint64(b[52:], at.mark)
	at.next++
	if at.tags != nil {
		if len(payload) > 0 {
			at.tags.put(b[payloadTagAt:headTagAt], payloadPart, payload)
		}
		at.tags.put(b[headTagAt:], headPart, b[:headTagAt])
		at.tags.frame++
		return b[:]
	}
	order.PutUint32(b[44:], crc32c.Update(0, payload))
	order.PutUint32(b[sumAt:], crc32c.Update(0, b[:sumAt]))
	return b[:frameHead]
}

// decode decodes the head of the next frame.
func (at *stream) decode(f *frame, b []byte) error {
	order := binary.LittleEndian
	if at.tags != nil {
		if !at.tags.isValid(b[headTagAt:], headPart, b[:headTagAt]) {
			return errAltered
		}
	} else if crc32c.Update(0, b[:sumAt]) != order.Uint32(b[sumAt:]) {
		return corrupt("the header of a message is corrupt (its CRC-32C does not match)")
	}
	if order.Uint64(b[52:]) != at.mark {
		return corrupt("received a message that was sent over another connection")
	}
	if number := order.Uint32(b[48:]); number != at.next {
		return corrupt("received message %d instead of message %d: a message was repeated or dropped", number, at.next)
	}
	*f = frame{class: class(b[0]), size: int(order.Uint32(b[40:])), sum: order.Uint32(b[44:]), Head: Head{
		Key: Key{Group: order.Uint64(b[8:]), Sequence: order.Uint64(b[16:]), Step: order.Uint32(b[24:]),
			Segment: order.Uint32(b[28:]), Direct: class(b[0]) == classDirect},
		Signature: Signature{Kind: b[1], Type: b[2], Op: b[3], Root: int32(order.Uint32(b[4:])), Bytes: order.Uint64(b[32:])},
	}}
	limit := MaxSegment
	switch f.class {
	case classAbort:
		limit = maxReason
	case classQuery:
		limit = 0
	}
	if f.class < classOperation || f.class > classQuery {
		return corrupt("received a message of unknown class %d", f.class)
	}
	if f.size > limit {
		return corrupt("received a message of %d bytes, over the limit of %d", f.size, limit)
	}
	at.next++
	return nil
}

// read reads the next frame. buffer returns the memory for its payload, or an error to reject it.
// read returns io.EOF if the peer closed the connection between frames.
func (at *stream) read(r io.Reader, f *frame, buffer func(*frame) ([]byte, error)) error {
	var whole [taggedHead]byte
	b := whole[:at.headSize()]
	if n, err := io.ReadFull(r, b); err != nil {
		return truncatedError(n, len(b), err)
	}
	if err := at.decode(f, b); err != nil {
		return err
	}
	payload, err := buffer(f)
	if err != nil {
		return err
	}
	if at.tags != nil {
		if n, err := io.ReadFull(r, payload); err != nil {
			return truncatedError(len(b)+n, len(b)+len(payload), err)
		}
		if len(payload) > 0 && !at.tags.isValid(b[payloadTagAt:headTagAt], payloadPart, payload) {
			return errAltered
		}
		at.tags.frame++
		return nil
	}
	sum := uint32(0)
	for got := 0; got < len(payload); {
		// The bytes that were just copied are still in the cache.
		n, err := r.Read(payload[got:])
		sum = crc32c.Update(sum, payload[got:got+n])
		if got += n; err != nil && got < len(payload) {
			return truncatedError(frameHead+got, frameHead+len(payload), err)
		}
	}
	if sum != f.sum {
		return corrupt("a message of %d bytes is corrupt (its CRC-32C is %08x, not %08x)", f.size, sum, f.sum)
	}
	return nil
}

// truncatedError describes a connection that closes in the middle of a frame.
func truncatedError(got, want int, err error) error {
	if got > 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return fmt.Errorf("the connection was closed after %d of the %d bytes of a message", got, want)
	}
	return err
}
