// Package collective is how the ranks of a job compute together: all-reduce,
// broadcast and barrier over every rank.
//
// It promises: every rank gets the same bits, and the same bits run after run
// for the same world size, because each element is summed in one fixed order;
// an operation either completes on this rank or returns an error that names the
// operation, its place in the sequence and the neighbour it waited for; ranks
// that are not in the same operation find out instead of mixing their data;
// nothing waits longer than the timeout.
//
// It does not encrypt, does not survive the loss of a rank (the error is final:
// start a new attempt), and one communicator runs one operation at a time.
package collective

import (
	"context"
	"fmt"
)

// Communicator connects the ranks of one attempt.
type Communicator interface {
	// Rank is this process's number, 0 to Size-1.
	Rank() int
	// Size is the number of ranks.
	Size() int
	// AllReduce replaces buf, on every rank, by the element-wise sum over all
	// ranks. Every rank must pass the same length.
	AllReduce(ctx context.Context, buf []float32) error
	// AllReduceFloat64 is AllReduce in double precision.
	AllReduceFloat64(ctx context.Context, buf []float64) error
	// Broadcast replaces buf on every other rank by that of root. Every rank
	// must pass the same length.
	Broadcast(ctx context.Context, buf []byte, root int) error
	// Barrier returns when every rank has entered it.
	Barrier(ctx context.Context) error
	// Close ends every connection; operations under way fail.
	Close() error
}

// Error is a failed operation.
type Error struct {
	Op       string // "all-reduce", "broadcast", "barrier"
	Sequence uint64 // the how-manieth operation of this communicator, from 0
	Peer     Peer   // the neighbour that was waited for
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

// Alone is the communicator of a job of one rank.
type Alone struct{}

// Rank is 0.
func (Alone) Rank() int { return 0 }

// Size is 1.
func (Alone) Size() int { return 1 }

// AllReduce leaves buf as it is: the sum over one rank.
func (Alone) AllReduce(ctx context.Context, _ []float32) error { return context.Cause(ctx) }

// AllReduceFloat64 leaves buf as it is.
func (Alone) AllReduceFloat64(ctx context.Context, _ []float64) error { return context.Cause(ctx) }

// Broadcast leaves buf as it is.
func (Alone) Broadcast(ctx context.Context, _ []byte, _ int) error { return context.Cause(ctx) }

// Barrier returns at once.
func (Alone) Barrier(ctx context.Context) error { return context.Cause(ctx) }

// Close does nothing.
func (Alone) Close() error { return nil }
