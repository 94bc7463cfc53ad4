package collective

import (
	"context"
	"fmt"
)

// SingleRank is the communicator of a job with a single rank.
type SingleRank struct{}

// Rank returns 0.
func (SingleRank) Rank() int { return 0 }

// Size returns 1.
func (SingleRank) Size() int { return 1 }

// Do copies this rank's input to its output.
func (SingleRank) Do(ctx context.Context, c Call) error {
	if err := c.Check(0, 1); err != nil {
		return fmt.Errorf("%v: %w", c.Kind, err)
	}
	c.copyOwn()
	return context.Cause(ctx)
}

// copyOwn performs any operation of a single rank.
func (c *Call) copyOwn() { copy(c.Recv, c.Send) }

// Start performs the call before it returns.
func (a SingleRank) Start(ctx context.Context, c Call) *Request {
	r := &Request{done: make(chan struct{}), err: a.Do(ctx, c)}
	close(r.done)
	return r
}

// Split returns the communicator itself, or nil if color is negative.
func (a SingleRank) Split(ctx context.Context, color, _ int) (Communicator, error) {
	if err := context.Cause(ctx); err != nil || color < 0 {
		return nil, err
	}
	return a, nil
}

// AllocBytes returns nil, because no other rank accesses the memory.
func (SingleRank) AllocBytes(context.Context, int) ([]byte, error) { return nil, nil }

// Path returns a path without an algorithm.
func (SingleRank) Path(Call) Path { return Path{Transport: "memory", Algorithm: "none"} }

// Close does nothing.
func (SingleRank) Close() error { return nil }
