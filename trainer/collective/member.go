package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// The functions below are for implementations of [Communicator] in other packages.

// Signature holds the arguments of a call that must be equal on all ranks.
type Signature = mesh.Signature

// Diverged returns an error that describes how the call of another rank differs from this rank's
// call.
func Diverged(sequence uint64, local, remote Signature) error {
	return diverged(&mesh.Mismatch{Sequence: sequence, Local: local, Remote: remote})
}

// Order returns the ranks that passed the given color to Split, ordered by key, then by rank. all
// holds the color and the key of each rank.
func Order(all []int64, color int) []int {
	var order []int
	for r := range len(all) / 2 {
		if all[2*r] == int64(color) {
			order = append(order, r)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	return order
}

// Derive returns the ID of the group that a color gets in the nth split of a group. All ranks of
// the new group derive the same ID.
func Derive(group, nth uint64, color int) uint64 {
	h := fnv.New64a()
	for _, v := range []uint64{group, nth, uint64(color)} {
		_ = binary.Write(h, binary.LittleEndian, v) // a hash never returns an error
	}
	return h.Sum64()
}

// NoTimeout is a timeout for [WithTimeout] that never passes, for messages that may arrive at any
// time. The context and a failure of the group still end the operation.
const NoTimeout = time.Duration(math.MaxInt64 / 2)

type timeoutKey struct{}

// WithTimeout returns a context that overrides the communicator's timeout for the operations that
// use it. The communicators of package mpi ignore it.
func WithTimeout(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, timeoutKey{}, timeout)
}

// TimeoutOf returns the timeout of an operation with the given context: the timeout of
// [WithTimeout], or else the given timeout of the communicator.
func TimeoutOf(ctx context.Context, timeout time.Duration) time.Duration {
	if other, ok := ctx.Value(timeoutKey{}).(time.Duration); ok {
		return other
	}
	return timeout
}

// Begin runs f in a goroutine. The request is done when f returns.
func Begin(f func() error) *Request {
	r := &Request{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = f()
	}()
	return r
}
