// Package mesh carries messages between the ranks of a job: any rank to any other,
// over TCP between processes or in memory between goroutines.
//
// A message is one segment of at most [MaxSegment] bytes under a [Key], which the
// sender and the receiver must both name and which is used once. It goes straight into
// the receiver's buffer if that waits for it, and is kept until it is asked for if not.
// It also carries the [Signature] of the operation that it is part of: messages whose
// signatures differ are never mixed, but are an error that names both.
//
// It promises: a message arrives whole, in its place and once, or the receiver gets an
// error that names the sender. Connections are made as they are needed, by peers that prove to
// know the job's secret. A peer that is gone, and why, is known to all ranks that wait for it;
// nothing waits for ever, if its context ends.
//
// There are two kinds of protection, see [Options].Authenticate:
//
//   - Checksums: each frame has its number on the connection, a mark that only the two ends
//     of the connection know, and CRCs of head and payload. Damage, repetition, loss, and
//     mix-ups with another connection or attempt are found. Whoever cannot read a connection
//     cannot insert a frame, because the mark is 64 secret bits. Whoever reads and alters the
//     connection can compute the CRCs and stays unnoticed.
//   - Tags: each frame has keyed tags (AES-256-GMAC) of head and payload instead. Nobody
//     without the job's secret can alter, repeat, leave out, insert, or reflect a frame
//     unnoticed.
//
// It does not know what operations are, does not encrypt, and does not repair: after a
// failure a mesh is of no more use.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// MaxSegment is the largest message in bytes: small enough that it is still in the
// cache when it is added up, large enough to hide the cost of waking who waits for it. A
// multiple of 8, so that no element is split.
const MaxSegment = 1024 << 10

// Key is the place of a message: in the group's operation of that number, or with
// Direct set under the user's tag.
type Key struct {
	Group, Sequence uint64
	Step, Segment   uint32
	Direct          bool
}

// Signature is what the ranks of an operation must agree on.
type Signature struct {
	Kind, Type, Op uint8
	Root           int32
	Bytes          uint64
}

// Head is what stands before a message.
type Head struct {
	Key
	Signature
}

// Mesh is one rank's ties to all others.
type Mesh interface {
	// Send gives b to a rank. It must not change before the transfer is done, or the
	// rank has answered to it.
	Send(to int, h Head, b []byte) *Transfer
	// Receive has the message of a rank put into b, which must be as long as it.
	Receive(from int, h Head, b []byte) *Transfer
	// Enter says that this rank is now in an operation. Its error is a [Mismatch]
	// with a rank that has already sent something else.
	Enter(group, sequence uint64, s Signature) error
	// Leave says that this rank enters no operation of a group any more.
	Leave(group uint64)
	// Lost is the [PeerError] of the first of these ranks that is gone, if any is.
	Lost(ranks []int) error
	// Ask has a rank say where it is in the operations of a group.
	Ask(ctx context.Context, rank int, group uint64) (State, error)
	// Abort tells all connected ranks the reason for which this one gives up, and
	// closes. Later failures are of that reason.
	Abort(reason *PeerError)
	// Close ends every connection, and returns when no buffer is in use any more.
	Close() error
	// Addr is where a rank is, for messages.
	Addr(rank int) string
}

// PeerError is a failure with the rank that caused it.
type PeerError struct {
	Peer int
	Err  error
}

// Error names the rank and the cause.
func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %v", e.Peer, e.Err) }

// Unwrap returns the cause.
func (e *PeerError) Unwrap() error { return e.Err }

// Mismatch says that a rank is in another operation than this one, or in the same with
// other arguments.
type Mismatch struct {
	Peer         int
	Sequence     uint64
	Direct       bool
	Ours, Theirs Signature
}

// Error names the rank.
func (e *Mismatch) Error() string {
	return fmt.Sprintf("rank %d is in another operation %d: %+v, not %+v", e.Peer, e.Sequence, e.Theirs, e.Ours)
}

// Told is the reason that another rank gave.
type Told struct {
	By   int
	Text string
}

// Error names that rank.
func (e *Told) Error() string { return fmt.Sprintf("rank %d gave up: %s", e.By, e.Text) }

// told is what others are told of a reason: the first rank's words.
func told(rank int, reason *PeerError) *Told {
	var t *Told
	if errors.As(reason.Err, &t) {
		return t
	}
	return &Told{rank, reason.Err.Error()}
}

// ErrClosed is the cause of failures after [Mesh.Close].
var ErrClosed = errors.New("this rank has closed its connections")

// errEnded is the cause where a peer closed a connection.
var errEnded = errors.New("the connection was closed")

// Transfer is a message on its way.
type Transfer struct {
	peer   int
	h      Head
	b      []byte
	kept   []byte // a message that came before it was asked for
	state  state
	done   chan struct{}
	err    error // valid once done is closed
	posted bool
}

type state uint8

const (
	awaited  state = iota // nothing has come
	arriving              // being read
	arrived
)

// Peer is the other rank.
func (t *Transfer) Peer() int { return t.peer }

// Done is closed when Wait would return at once.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Over reports whether Wait would return at once.
func (t *Transfer) Over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait returns when the message has been sent or received, or with a [PeerError].
func (t *Transfer) Wait(ctx context.Context) error {
	if t.Over() {
		return t.err
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return &PeerError{t.peer, context.Cause(ctx)}
	}
}

// Options describe a rank's place in a mesh of processes.
type Options struct {
	Rank int
	// Addrs is where each rank listens, as "host:port".
	Addrs  []string
	Secret wire.Secret
	// Source is the address to connect from; nil leaves it to the kernel.
	Source net.IP
	// Sockets is the number of connections to each rank, among which the segments
	// of large messages are dealt; 0 is 2.
	Sockets int
	// Authenticate protects messages with keyed tags instead of CRCs. All ranks must have the
	// same value.
	Authenticate bool
	// State is what this rank answers to [Mesh.Ask] of others; it must not block.
	State func(group uint64) State
	// ConnectTimeout is how long a rank is waited for when it is first needed.
	ConnectTimeout time.Duration
}
