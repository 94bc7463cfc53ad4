package collective

import (
	"context"
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
