// Package collective implements MPI-style collectives and point-to-point messages on buffers of
// numeric elements, between goroutines, between processes of a node, and between nodes.
//
// A [Communicator] performs a [Call], synchronously or in the background:
//
//	err := c.Do(ctx, collective.AllReduce(gradients, collective.Sum))
//	request := c.Start(ctx, collective.AllGather(all, mine))
//	...
//	err = request.Wait()
//
// [Local] connects goroutines, which access each other's buffers. [Connect] connects processes and
// selects the transport: ranks of one node share memory, others exchange messages over TCP. With
// both, collectives are hierarchical. Each node reduces in shared memory first, so its data crosses
// the network once. The ranks of the node then divide the buffer, and each exchanges its shard with
// its counterparts, the ranks with the same local index on the other nodes. (If nodes differ in
// size, as many ranks per node take part as the smallest node has.) Large buffers are cut into
// segments, which are pipelined around a ring of ranks. Smaller buffers use algorithms with fewer
// steps; the threshold grows with the number of ranks ([ReduceAlgorithm]). [Communicator.Path]
// reports the transport and the algorithm of a call.
//
// A group of ranks has one of three engines: shared.go for ranks that share memory, messages.go for
// ranks that exchange messages, and nodes*.go for both. world.go and nodes.go select it. The
// algorithms for messages are in ring.go, doubling.go, halving.go, trees.go, and parts.go; choice.go
// holds the thresholds between them. root_cause.go and divergence.go find the rank that is the cause
// of a failure. member.go exports what implementations in other packages need, such as package mpi.
//
// Guarantees:
//   - Every rank gets bit-identical results, and repeated runs with the same layout of ranks on
//     nodes get them also, because each element is reduced in one fixed order. In shared
//     memory, the order is by rank. In a ring, it starts at the rank after the owner of the part.
//     Recursive doubling and halving reduce pairs, with the lower rank first. Between nodes, these
//     algorithms reduce the results of the nodes.
//   - The order depends on the length of the whole buffer, not on which ranks want the result:
//     all-reduce, reduce, and reduce-scatter give the same bits.
//   - An operation completes on this rank or returns an [Error] with the operation, its sequence
//     number, and the failed rank.
//   - Ranks that are in different operations, or pass different arguments, detect the mismatch
//     instead of mixing their data. If no message shows the mismatch, they query each other and
//     detect it within seconds.
//   - No operation waits longer than its timeout plus the time to find the unresponsive rank. The
//     error names the rank that is stopped or has not entered the operation, not a rank that waits
//     for it.
//
// Limits:
//   - After a failure, all further operations fail, and the contents of the buffers are undefined.
//   - The data is not encrypted.
//   - After the loss of a rank, the other ranks cannot continue: start a new attempt.
//   - The collectives of a communicator run one after another, in the order of the calls, which
//     must be the same on every rank. Messages between two ranks ([Send] and [Receive]) are not
//     part of that order.
package collective

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// A Communicator connects all ranks of an attempt, or a group of them.
type Communicator interface {
	// Rank returns the index of this process, from 0 to Size-1.
	Rank() int
	// Size returns the number of ranks.
	Size() int
	// Do performs a call. It returns when this rank's part is done and its buffers may be reused.
	Do(ctx context.Context, c Call) error
	// Start begins a call. The call owns its buffers until the request is done.
	Start(ctx context.Context, c Call) *Request
	// Split returns a communicator of the ranks that pass the same color, ordered by key, then by
	// rank. Every rank must call it. It returns nil if color is negative.
	Split(ctx context.Context, color, key int) (Communicator, error)
	// AllocBytes returns zeroed memory for operations without copies, or nil: see [Alloc].
	AllocBytes(ctx context.Context, bytes int) ([]byte, error)
	// Path returns the transport and the algorithm of a call, for logs and benchmarks.
	Path(c Call) Path
	// Close closes the communicator. Operations in progress fail. Closing the communicator of all
	// ranks also closes the connections of communicators that were split from it.
	Close() error
}

// Path describes how a call is performed.
type Path struct {
	Transport string // such as "memory", "tcp", or "shared memory and tcp"
	Algorithm string // such as "ring"
	// Why is the reason why the ranks of a node do not share memory. It is usually empty.
	Why string
}

// These aliases make the arithmetic of package element available from this package.
type (
	Op     = element.Op
	Type   = element.Type
	Number = element.Number
)

// These are the reductions of package element.
const (
	Sum     = element.Sum
	Mean    = element.Mean
	Max     = element.Max
	Min     = element.Min
	Product = element.Product
)

// An Error describes a failed operation.
type Error struct {
	Op       string // "all-reduce", "broadcast", "send"
	Sequence uint64 // sequence number of the operation, from 0; for point-to-point messages, the tag
	Peer     Peer   // the failed rank, among all ranks of the attempt
	Err      error
}

// Error returns the operation, the peer, and the cause in one line.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %d with rank %d (%s): %v", e.Op, e.Sequence, e.Peer.Rank, e.Peer.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A Peer is another rank with its listen address.
type Peer struct {
	Rank int
	Addr string
}

// A Request is a call in progress.
type Request struct {
	done chan struct{}
	err  error
}

// Done returns a channel that is closed when the call has finished.
func (r *Request) Done() <-chan struct{} { return r.done }

// Wait waits until the call has finished and returns its error.
func (r *Request) Wait() error {
	<-r.done
	return r.err
}

// Alloc returns zeroed memory for n elements that the other ranks can access directly, so that
// operations on it need no copies. It returns nil if c has no such memory; any buffer is then
// equally fast. Every rank must call it at the same position in the sequence of operations; n may
// differ. The memory remains allocated until the process exits.
func Alloc[T Number](ctx context.Context, c Communicator, n int) ([]T, error) {
	if c.Size() == 1 {
		return nil, nil
	}
	b, err := c.AllocBytes(ctx, n*element.Of[T]().Size())
	if b == nil || err != nil {
		return nil, err
	}
	return element.View[T](b), nil
}
