package collective

import (
	"context"
	"fmt"
)

// Alone is the communicator of a job with a single rank.
type Alone struct{}

// Rank returns 0.
func (Alone) Rank() int { return 0 }

// Size returns 1.
func (Alone) Size() int { return 1 }

// Do copies this rank's input to its output.
func (Alone) Do(ctx context.Context, c Call) error {
	if err := c.check(0, 1); err != nil {
		return fmt.Errorf("%v: %w", c.Kind, err)
	}
	c.alone()
	return context.Cause(ctx)
}

// alone performs any operation of a single rank.
func (c *Call) alone() { copy(c.Recv, c.Send) }

// Start performs the call before it returns.
func (a Alone) Start(ctx context.Context, c Call) *Request {
	r := &Request{done: make(chan struct{}), err: a.Do(ctx, c)}
	close(r.done)
	return r
}

// Split returns the communicator itself, or nil if color is negative.
func (a Alone) Split(ctx context.Context, color, _ int) (Communicator, error) {
	if err := context.Cause(ctx); err != nil || color < 0 {
		return nil, err
	}
	return a, nil
}

// AllocBytes returns nil, because no other rank accesses the memory.
func (Alone) AllocBytes(context.Context, int) ([]byte, error) { return nil, nil }

// Path returns a path without an algorithm.
func (Alone) Path(Call) Path { return Path{Transport: "memory", Algorithm: "none"} }

// Close does nothing.
func (Alone) Close() error { return nil }
