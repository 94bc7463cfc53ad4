package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// What follows is for members that other packages implement.

// Signature is what all ranks must pass alike to a call.
type Signature = mesh.Signature

// Signature is the call's among n ranks.
func (c *Call) Signature(n int) Signature { return c.signature(n) }

// Check says what is wrong with the arguments on this rank of so many.
func (c *Call) Check(rank, size int) error { return c.check(rank, size) }

// Part is the bytes that belong to one of n ranks; where an operation has no parts, all.
func (c *Call) Part(n int) int { return c.part(n) }

// Diverged says how the call of a rank differs from this one's.
func Diverged(sequence uint64, ours, theirs Signature) error {
	return diverged(&mesh.Mismatch{Sequence: sequence, Ours: ours, Theirs: theirs})
}

// Order is the ranks that have given a color to a split, by their keys, then by rank; all
// has color and key of each rank.
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

// Derive makes a number for the group of a color in the nth split of a group, to which
// all its ranks come.
func Derive(group, nth uint64, color int) uint64 {
	h := fnv.New64a()
	for _, v := range []uint64{group, nth, uint64(color)} {
		_ = binary.Write(h, binary.LittleEndian, v) // a hash takes anything
	}
	return h.Sum64()
}

type timeoutKey struct{}

// WithTimeout has operations with the context take another time than the communicator's
// timeout.
func WithTimeout(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, timeoutKey{}, timeout)
}

// timeoutOf is what bounds an operation with the context.
func timeoutOf(ctx context.Context, timeout time.Duration) time.Duration {
	if other, ok := ctx.Value(timeoutKey{}).(time.Duration); ok {
		return other
	}
	return timeout
}

// Begin performs f in a goroutine; the request is done when it returns.
func Begin(f func() error) *Request {
	r := &Request{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = f()
	}()
	return r
}
