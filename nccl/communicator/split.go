package communicator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// SplitGPUs splits the communicator like [Comm.Split] and returns a concrete type. It uses NCCL's
// split, which reuses connections. Before version 2.18, NCCL has no split, so SplitGPUs creates
// a new unique ID.
func (c *Comm) SplitGPUs(ctx context.Context, color, key int) (*Comm, error) {
	limit := c.options.ConnectTimeout
	soon := collective.WithTimeout(ctx, limit)
	if err := c.failure(); err != nil {
		return nil, err
	}
	host, err := c.options.Control.Split(soon, color, key)
	if err != nil {
		return nil, c.fail("split", 0, err)
	}
	o := c.options
	o.Control, o.world = host, c.peers[c.Rank()].Rank
	if !c.options.Library.CanSplit() {
		if host == nil {
			return nil, nil
		}
		return c.part(connectAs(ctx, o))
	}
	if host == nil {
		_, err := c.lane.split(soon, libnccl.NoColor, 0, limit)
		if err != nil {
			return nil, c.fail("split", 0, err)
		}
		return nil, nil
	}
	return c.part(connect(ctx, o, func(part *Comm, ctx context.Context) error {
		// The order of the host communicator's ranks is the order of the part's ranks.
		made, err := c.lane.split(ctx, color, host.Rank(), limit)
		if err != nil {
			return part.explain(err, libnccl.UniqueID{})
		}
		return part.lane.adopt(ctx, made, limit)
	}))
}

// part makes a new part own its host communicator. If the split failed, it fails this
// communicator.
func (c *Comm) part(part *Comm, err error) (*Comm, error) {
	if err != nil {
		return nil, c.fail("split", 0, err)
	}
	part.hosts = append(part.hosts, part.options.Control)
	return part, nil
}

// split makes NCCL split the lane's communicator, after all operations in progress have ended.
func (l *lane) split(ctx context.Context, color, key int, limit time.Duration) (made libnccl.Comm, err error) {
	out := new(libnccl.Comm)
	l.pins.Pin(out)
	deadline := time.Now().Add(limit)
	for idle := false; !idle; {
		in := l.thread.do(limit, func() {
			if idle = len(l.pending) == 0; !idle {
				return
			}
			config := libnccl.NewConfig(l.library.Version)
			if err = l.library.CommSplit(l.comm, color, key, out, &config); err == nil {
				err = l.waitAsync(ctx, deadline)
			}
			made = *out
		})
		if !in {
			return 0, fmt.Errorf("NCCL did not return from its split within %s", limit)
		}
		if cause := context.Cause(ctx); !idle && cause != nil {
			return 0, fmt.Errorf("operations have not ended: %w", cause)
		}
		if !idle {
			time.Sleep(100 * time.Microsecond)
		}
	}
	return made, err
}

// adopt makes the result of NCCL's split the lane's communicator.
func (l *lane) adopt(ctx context.Context, made libnccl.Comm, limit time.Duration) (err error) {
	if made == 0 {
		return errors.New("NCCL returned no communicator for this rank")
	}
	in := l.thread.do(limit+closeTimeout, func() {
		l.comm = made
		if err = l.waitAsync(ctx, time.Now().Add(limit)); err != nil {
			l.abort()
		}
	})
	if !in {
		return fmt.Errorf("NCCL did not connect the new communicator within %s", limit)
	}
	return err
}
