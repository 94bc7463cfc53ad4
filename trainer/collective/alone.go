package collective

import (
	"context"
	"fmt"
)

// Alone is the communicator of a job of one rank.
type Alone struct{}

// Rank is 0.
func (Alone) Rank() int { return 0 }

// Size is 1.
func (Alone) Size() int { return 1 }

// Do copies what this rank brings to where its result goes.
func (Alone) Do(ctx context.Context, c Call) error {
	if err := c.check(0, 1); err != nil {
		return fmt.Errorf("%v: %w", c.Kind, err)
	}
	c.alone()
	return context.Cause(ctx)
}

// alone is any operation of a single rank.
func (c *Call) alone() { copy(c.Recv, c.Send) }

// Start is Do.
func (a Alone) Start(ctx context.Context, c Call) *Request {
	r := &Request{done: make(chan struct{}), err: a.Do(ctx, c)}
	close(r.done)
	return r
}

// Split returns the same.
func (a Alone) Split(ctx context.Context, color, _ int) (Communicator, error) {
	if err := context.Cause(ctx); err != nil || color < 0 {
		return nil, err
	}
	return a, nil
}

// Path is none.
func (Alone) Path(Call) Path { return Path{Transport: "memory", Algorithm: "none"} }

// Close does nothing.
func (Alone) Close() error { return nil }
