// Package collective is how the ranks of a job compute together: the operations of MPI
// on numbers of many types, between goroutines, processes of a node, and nodes.
//
// A [Communicator] performs a [Call], and waits for it or not:
//
//	err := c.Do(ctx, collective.AllReduce(gradients, collective.Sum))
//	request := c.Start(ctx, collective.AllGather(all, mine))
//	...
//	err = request.Wait()
//
// [Local] connects goroutines, which work on each other's buffers. [Connect] connects
// processes, and finds the way by itself: ranks of one node share memory, others
// exchange messages over TCP. Where there are both, what a node's ranks have in common
// goes between nodes once: each node adds up first, its ranks divide the buffer among
// them, and each sends its share to its counterparts, the ranks of the same place on the
// other nodes. (Where nodes differ in size, as many as the smallest has do so.) Large
// buffers are cut into segments that follow each other through the ring of ranks; what
// is large grows with the ranks ([ReduceAlgorithm]), others take fewer steps.
// [Communicator.Path] says which way a call goes.
//
// It promises: every rank gets the same bits, and the same bits run after run for the
// same layout of ranks on nodes, because each element is computed in one fixed order:
// in shared memory that of the ranks, in a ring from the rank after the one that owns
// the part, in recursive doubling and halving pairwise with the lower rank's side
// first, and between nodes over the results of the nodes. That order depends on the
// length of the whole buffer, and not on who wants the result: all-reduce, reduce and
// reduce-scatter give the same bits. An operation either completes
// on this rank or returns an [Error] that names the operation, its place in the
// sequence and the rank that is the cause; ranks that are not in the same operation, or
// in it with other arguments, find out instead of mixing their data, and within seconds
// where none of them sends anything that would tell, since they ask each other; nothing
// waits longer than the timeout and the time of asking who is silent, which names the rank
// that is stopped or has not entered, not one that waits for it; after a failure nothing
// works any more, and buffers hold nothing of use.
//
// It does not encrypt, does not survive the loss of a rank (start a new attempt), and
// performs the operations of one communicator one after another, in the order of the
// calls, which must be the same on every rank. Messages between two ranks (Send and
// Receive) are apart from that order.
package collective

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// Communicator connects the ranks of one attempt, or of a group of them.
type Communicator interface {
	// Rank is this process's number, 0 to Size-1.
	Rank() int
	// Size is the number of ranks.
	Size() int
	// Do performs a call; it returns when this rank's part is done and its buffers
	// are free.
	Do(ctx context.Context, c Call) error
	// Start begins a call. Its buffers belong to it until the request is done.
	Start(ctx context.Context, c Call) *Request
	// Split makes communicators of the ranks that give the same color, ordered by
	// key, then by rank. Every rank must call it. It is nil with a negative color.
	Split(ctx context.Context, color, key int) (Communicator, error)
	// Path says how a call goes, for logs and benchmarks.
	Path(c Call) Path
	// Close ends the communicator; operations under way fail. That of all ranks ends
	// those that were split from it, too.
	Close() error
}

// Path is the way that a call takes.
type Path struct {
	Transport string // "memory", "shared memory", "tcp", or "shared memory and tcp"
	Algorithm string // "ring", say
	// Why is the reason for which ranks of a node do not share memory; mostly empty.
	Why string
}

// The arithmetic of package element, under this package's name too.
type (
	Op     = element.Op
	Type   = element.Type
	Number = element.Number
)

// The reductions.
const (
	Sum     = element.Sum
	Mean    = element.Mean
	Max     = element.Max
	Min     = element.Min
	Product = element.Product
)

// Error is a failed operation.
type Error struct {
	Op       string // "all-reduce", "broadcast", "send"
	Sequence uint64 // the how-manieth operation of this communicator, from 0; for messages the tag
	Peer     Peer   // the rank that is the cause, among all ranks of the attempt
	Err      error
}

// Error names operation, peer and cause in one line.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %d with rank %d (%s): %v", e.Op, e.Sequence, e.Peer.Rank, e.Peer.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Peer is another rank and the address it listens on.
type Peer struct {
	Rank int
	Addr string
}

// Request is a call that was started.
type Request struct {
	done chan struct{}
	err  error
}

// Done is closed when the call is over.
func (r *Request) Done() <-chan struct{} { return r.done }

// Wait returns when the call is over, with its error.
func (r *Request) Wait() error {
	<-r.done
	return r.err
}

// Alloc returns zeroed memory for n numbers that the other ranks can read where it is, so
// that operations on it need not copy; nil where c has no such memory, and any will do.
// Every rank must call it in the same place of the sequence of operations; n may differ.
// The memory stays until the process ends.
func Alloc[T Number](ctx context.Context, c Communicator, n int) ([]T, error) {
	a, ok := c.(interface {
		AllocBytes(ctx context.Context, bytes int) ([]byte, error)
	})
	if !ok || c.Size() == 1 {
		return nil, nil
	}
	b, err := a.AllocBytes(ctx, n*element.Of[T]().Size())
	if b == nil || err != nil {
		return nil, err
	}
	return element.View[T](b), nil
}
