package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"time"
)

// pieceSize is the largest payload of one frame in bytes: small enough that a
// piece is still in the cache when it is summed, large enough to hide the cost
// of a system call. A multiple of 8, so that no element is split.
const pieceSize = 256 << 10

// A frame is a header and at most pieceSize bytes:
// opcode (1), 3 zero bytes, length (4), sequence (8), CRC-32C of the payload (4).
const frameHeader = 20

// opcode says which operation a frame belongs to.
type opcode byte

const (
	opAllReduce opcode = iota + 1
	opAllReduce64
	opBroadcast
	opBarrier
)

func (o opcode) String() string {
	switch o {
	case opAllReduce, opAllReduce64:
		return "all-reduce"
	case opBroadcast:
		return "broadcast"
	case opBarrier:
		return "barrier"
	}
	return fmt.Sprintf("operation %d", byte(o))
}

var (
	errTimeout = os.ErrDeadlineExceeded
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// link is one direction of the ring: a connection that carries frames of the
// operation that it was told to expect.
type link struct {
	conn     net.Conn
	op       opcode
	sequence uint64
	sendHead [frameHeader]byte
	recvHead [frameHeader]byte
}

func newLink(c net.Conn) *link { return &link{conn: c} }

func (l *link) begin(op opcode, sequence uint64, deadline time.Time) error {
	l.op, l.sequence = op, sequence
	return l.conn.SetDeadline(deadline)
}

// send writes b as pieces; an empty b is no piece at all.
func (l *link) send(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), pieceSize)
		if err := l.sendPiece(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (l *link) sendPiece(b []byte) error {
	h := &l.sendHead
	h[0] = byte(l.op)
	binary.LittleEndian.PutUint32(h[4:], uint32(len(b)))
	binary.LittleEndian.PutUint64(h[8:], l.sequence)
	binary.LittleEndian.PutUint32(h[16:], crc32.Checksum(b, castagnoli))
	buffers := net.Buffers{h[:], b}
	_, err := buffers.WriteTo(l.conn)
	return ended(err)
}

// receive fills b with pieces and tells arrived of each one.
func (l *link) receive(b []byte, arrived func(from, to int)) error {
	for from := 0; from < len(b); {
		to := min(from+pieceSize, len(b))
		if err := l.receivePiece(b[from:to]); err != nil {
			return err
		}
		if arrived != nil {
			arrived(from, to)
		}
		from = to
	}
	return nil
}

func (l *link) receivePiece(b []byte) error {
	h := &l.recvHead
	if _, err := io.ReadFull(l.conn, h[:]); err != nil {
		return ended(err)
	}
	op, size, sequence := opcode(h[0]), binary.LittleEndian.Uint32(h[4:]), binary.LittleEndian.Uint64(h[8:])
	if op != l.op || sequence != l.sequence {
		return fmt.Errorf("that rank is in %s %d: the ranks' programs have diverged", op, sequence)
	}
	if int(size) != len(b) {
		return fmt.Errorf("a piece of %d bytes came where %d were expected: the ranks' buffers differ in length", size, len(b))
	}
	if _, err := io.ReadFull(l.conn, b); err != nil {
		return ended(err)
	}
	if sum := crc32.Checksum(b, castagnoli); sum != binary.LittleEndian.Uint32(h[16:]) {
		return errors.New("a piece arrived damaged (CRC-32C does not match)")
	}
	return nil
}

// ended puts the end of a connection into words.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the connection was closed: %w", err)
	}
	return err
}
