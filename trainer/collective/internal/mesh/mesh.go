// Package mesh carries messages between any two ranks of a job, over TCP between processes or in
// memory between goroutines.
//
// A message is one segment of at most [MaxSegment] bytes with a [Key], which the sender and the
// receiver must both specify and which is used once. It is read directly into the receiver's buffer
// if the receiver has posted one; otherwise it is stored until it is requested. A message also
// carries the [Signature] of its operation. Messages with different signatures are never mixed: a
// mismatch is an error that names both.
//
// Guarantees:
//   - A message arrives complete, in order, and once, or the receiver gets an error that names the
//     sender.
//   - Connections are made on first use, between peers that authenticate with the job's secret.
//   - All ranks that wait for a lost peer receive the reason.
//   - Every wait ends when its context ends.
//
// There are two kinds of protection, see [Options].Authenticate:
//   - Checksums: each frame has its number on the connection, a mark that only the two ends of the
//     connection have, and CRCs of head and payload. They detect corruption, repetition, loss, and
//     mix-ups with another connection or attempt. An attacker who cannot read a connection cannot
//     insert a frame, because the mark is 64 secret bits. An attacker who reads and alters the
//     connection can compute the CRCs and is not detected.
//   - Tags: each frame has keyed tags (AES-256-GMAC) of head and payload instead. Without the
//     job's secret, nobody can alter, repeat, drop, insert, or reflect a frame undetected.
//
// Limits: the package does not interpret operations, does not encrypt, and does not repair. A mesh
// cannot be used after a failure.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// MaxSegment is the size of the largest message in bytes: small enough that it is still in the
// cache when it is reduced, large enough to hide the cost of waking its receiver. It is a multiple
// of 8, so that no element is split.
const MaxSegment = 1024 << 10

// A Key identifies a message: by the sequence number of the group's operation, or by the user's tag
// if Direct is set.
type Key struct {
	Group, Sequence uint64
	Step, Segment   uint32
	Direct          bool
}

// A Signature holds the arguments of an operation that must be equal on all ranks.
type Signature struct {
	Kind, Type, Op uint8
	Root           int32
	Bytes          uint64
}

// A Head precedes each message.
type Head struct {
	Key
	Signature
}

// A Mesh connects one rank to all others.
type Mesh interface {
	// Send sends b to a rank. b must not change before the transfer is done or the rank has
	// answered.
	Send(to int, h Head, b []byte) *Transfer
	// Receive receives the message of a rank into b, which must have the length of the message.
	Receive(from int, h Head, b []byte) *Transfer
	// Enter records the operation that this rank is in. It returns a [Mismatch] if a rank has
	// already sent a message of a different operation.
	Enter(group, sequence uint64, s Signature) error
	// Leave removes a group. This rank enters no further operation of it.
	Leave(group uint64)
	// Lost returns the error of this mesh, or the [PeerError] of the first of these ranks that is
	// lost, or nil.
	Lost(ranks []int) error
	// Query queries the state of a rank in the operations of a group.
	Query(ctx context.Context, rank int, group uint64) (State, error)
	// Abort sends the reason why this rank fails to all connected ranks and closes the mesh. Later
	// errors have the same reason.
	Abort(reason *PeerError)
	// Close closes all connections. It returns when no buffer is in use anymore.
	Close() error
	// Addr returns the address of a rank, for messages.
	Addr(rank int) string
}

// A PeerError is a failure with the rank that caused it.
type PeerError struct {
	Peer int
	Err  error
}

// Error returns the rank and the cause.
func (e *PeerError) Error() string { return fmt.Sprintf("rank %d: %v", e.Peer, e.Err) }

// Unwrap returns the cause.
func (e *PeerError) Unwrap() error { return e.Err }

// A Mismatch reports that a rank is in a different operation from this rank, or in the same
// operation with different arguments.
type Mismatch struct {
	Peer          int
	Sequence      uint64
	Direct        bool
	Local, Remote Signature
}

// Error returns the rank and both signatures.
func (e *Mismatch) Error() string {
	return fmt.Sprintf("rank %d is in a different operation %d: %+v, not %+v", e.Peer, e.Sequence, e.Remote, e.Local)
}

// RemoteAbort is the reason that another rank reported.
type RemoteAbort struct {
	By   int
	Text string
}

// Error returns the reporting rank and the reason.
func (e *RemoteAbort) Error() string { return fmt.Sprintf("rank %d gave up: %s", e.By, e.Text) }

// abortReason returns the reason to report to other ranks: the message of the rank that reported it
// first.
func abortReason(rank int, reason *PeerError) *RemoteAbort {
	var t *RemoteAbort
	if errors.As(reason.Err, &t) {
		return t
	}
	return &RemoteAbort{rank, reason.Err.Error()}
}

// ErrClosed is the cause of failures after [Mesh.Close].
var ErrClosed = errors.New("this rank has closed its connections")

// errConnectionClosed is the cause if a peer closes a connection.
var errConnectionClosed = errors.New("the connection was closed")

// A Transfer is a message in transit.
type Transfer struct {
	peer   int
	h      Head
	b      []byte
	early  []byte // a message that arrived before it was requested
	state  state
	done   chan struct{}
	err    error // valid once done is closed
	posted bool
}

type state uint8

const (
	awaited  state = iota // nothing has arrived
	arriving              // being read
	arrived
)

// Peer returns the other rank.
func (t *Transfer) Peer() int { return t.peer }

// Done returns a channel that is closed when Wait would return immediately.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Over reports whether Wait would return immediately.
func (t *Transfer) Over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait waits until the message is sent or received. On failure, it returns a [PeerError], a
// [Mismatch], or [ErrClosed].
func (t *Transfer) Wait(ctx context.Context) error {
	select {
	case <-t.done:
	case <-ctx.Done():
		if !t.Over() {
			return &PeerError{t.peer, context.Cause(ctx)}
		}
	}
	return t.err
}

// Options configure a rank of a mesh of processes.
type Options struct {
	Rank int
	// Addrs is the listen address of each rank, as "host:port".
	Addrs  []string
	Secret wire.Secret
	// Source is the address to connect from; nil lets the kernel choose.
	Source net.IP
	// Sockets is the number of connections to each rank. The segments of large messages are
	// distributed among them. The default is 2.
	Sockets int
	// Authenticate protects messages with keyed tags instead of CRCs. All ranks must pass the same
	// value.
	Authenticate bool
	// State returns this rank's answer to [Mesh.Query] of other ranks. It must not block.
	State func(group uint64) State
	// ConnectTimeout limits the first connection to a rank.
	ConnectTimeout time.Duration
}
