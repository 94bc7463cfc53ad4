package communicator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Options are the settings of this rank's communicator.
type Options struct {
	Library *libnccl.Library
	GPU     GPU
	// Control connects the hosts of the same ranks. It carries NCCL's unique ID and the ranks'
	// messages about operations. The caller still owns it, but must not use it during Connect and
	// Close. If NCCL fails, Control fails also, so that all ranks are notified.
	Control collective.Communicator
	// Check makes the ranks compare the arguments of each operation.
	Check bool
	// Host is the name of this host and Interface the value of NCCL_SOCKET_IFNAME, for
	// messages.
	Host, Interface string
	// ConnectTimeout limits Connect and the first message between two ranks. Timeout limits
	// each operation.
	ConnectTimeout, Timeout time.Duration
}

// A Comm is an NCCL communicator. It has the operations of the trainer on GPU memory, in float32 and
// bfloat16.
type Comm struct {
	options Options
	peers   []collective.Peer // by rank: rank and host
	lane    *lane
	checks  *checks
	hosts   []collective.Communicator // host communicators that this Comm created
	cancel  context.CancelCauseFunc   // cancels ctx at the first failure
	ctx     context.Context

	mu     sync.Mutex // ensures that all checks and streams see operations in one order
	next   uint64
	last   *operation
	after  Event
	closed bool

	failing sync.Mutex
	broken  error
}

// Connect creates a communicator of all ranks of o.Control. All of them must call it.
func Connect(ctx context.Context, o Options) (*Comm, error) {
	ctx = collective.WithTimeout(ctx, o.ConnectTimeout)
	c := &Comm{options: o}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := c.exchangePeerInfo(ctx)
	if err == nil {
		c.lane, err = openLane(&c.options, c.failed)
	}
	// A rank without a lane must notify the others, or they wait for it.
	if all := c.runOnAllRanks(ctx, func(ctx context.Context) error {
		if err != nil {
			return err
		}
		var id libnccl.UniqueID
		if id, err = c.uniqueID(ctx); err == nil {
			err = c.lane.connect(ctx, id, o.ConnectTimeout)
		}
		err = c.explain(err, id)
		return err
	}); err == nil {
		err = all
	}
	if err == nil {
		c.startChecks()
		return c, nil
	}
	if c.lane != nil {
		err = errors.Join(err, c.lane.close(false))
	}
	c.closeHosts()
	return nil, fmt.Errorf("connect the GPUs: %w", err)
}

// Rank returns the rank of this process, from 0 to Size-1.
func (c *Comm) Rank() int { return c.options.Control.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.options.Control.Size() }

// After makes the next call wait for a GPU event, on the GPU.
func (c *Comm) After(event Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = event
}

// AllReduce replaces buf by the sum over all ranks.
func (c *Comm) AllReduce(ctx context.Context, buf device.Tensor) error {
	return c.do(ctx, &operation{kind: collective.KindAllReduce, send: buf, recv: buf})
}

// ReduceScatter writes this rank's shard of the sum of whole over all ranks to part, which may be
// that shard of whole.
func (c *Comm) ReduceScatter(ctx context.Context, part, whole device.Tensor) error {
	return c.do(ctx, &operation{kind: collective.KindReduceScatter, send: whole, recv: part})
}

// AllGather copies every rank's shard to its position in whole. Part may be in whole.
func (c *Comm) AllGather(ctx context.Context, whole, part device.Tensor) error {
	return c.do(ctx, &operation{kind: collective.KindAllGather, send: part, recv: whole})
}

// do performs an operation.
func (c *Comm) do(ctx context.Context, o *operation) error {
	checked, started, err := c.start(ctx, o)
	if err != nil {
		return err
	}
	if started {
		if err := c.wait(ctx, o); err != nil {
			return err
		}
	}
	select {
	case err = <-checked:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return c.fail(o.kind.String(), o.number, err)
	}
	return nil
}

// start starts an operation, unless its arguments are wrong. The returned channel receives the result
// of the ranks' check, or the error in the arguments.
func (c *Comm) start(ctx context.Context, o *operation) (checked <-chan error, started bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.after, o.number, o.done = c.after, c.next, make(chan struct{})
	c.after = nil
	if c.closed {
		return nil, false, errClosed
	}
	if err := c.failure(); err != nil {
		return nil, false, err
	}
	c.next++
	wrong := o.check(c.Size())
	checked = c.checks.add(o, wrong)
	if wrong == nil {
		c.last = o
		c.lane.begin(ctx, o)
	}
	return checked, wrong == nil, nil
}

// wait returns when an operation has ended on the GPU. After a failure, it returns when NCCL
// no longer uses the buffers, or after a timeout.
func (c *Comm) wait(ctx context.Context, o *operation) error {
	select {
	case <-o.done:
	case <-c.ctx.Done():
	case <-ctx.Done():
		_ = c.fail(o.kind.String(), o.number, context.Cause(ctx))
	}
	select {
	case <-o.done:
		return o.err
	case <-time.After(closeTimeout):
		return errors.Join(c.failure(), fmt.Errorf("NCCL did not release the buffers within %s", closeTimeout))
	}
}

// Close closes the communicator. If all operations have ended, it waits a few seconds for
// other ranks to finish them. Otherwise it aborts.
func (c *Comm) Close() error {
	c.mu.Lock()
	was := c.closed
	c.closed = true
	c.mu.Unlock()
	if was {
		return nil
	}
	close(c.checks.begun)
	close(c.checks.ended)
	well := c.idle() && c.checks.waitAll() && c.failure() == nil
	_ = c.record(errClosed)
	c.cancel(errClosed)
	err := c.lane.close(well)
	c.closeHosts()
	return err
}

// idle reports whether all operations have ended on this rank.
func (c *Comm) idle() bool {
	if c.last == nil {
		return true
	}
	select {
	case <-c.last.done:
		return true
	default:
		return false
	}
}

func (c *Comm) closeHosts() {
	for _, h := range c.hosts {
		_ = h.Close() // the caller's communicator reports the end
	}
}
