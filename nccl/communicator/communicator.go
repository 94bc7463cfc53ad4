package communicator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
	// Close. If NCCL fails, Control fails also, so that all ranks are notified. It must support
	// [collective.WithTimeout].
	Control collective.Communicator
	// Check makes the ranks compare the arguments of each operation over Control, for debugging.
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
	after  Event
	closed bool

	begun  atomic.Pointer[operation] // the last operation that this rank has begun, or nil
	alarms *alarms                   // nil with checks, or with one rank

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
		c.lane, err = openLane(&c.options, c)
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
		if c.checks.isDisabled() && c.Size() > 1 {
			c.startAlarms()
		}
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

// AllReduce starts to replace buf by the sum over all ranks.
func (c *Comm) AllReduce(ctx context.Context, buf device.Tensor) (*Work, error) {
	return c.start(ctx, &operation{kind: collective.KindAllReduce, send: buf, recv: buf})
}

// ReduceScatter starts to write this rank's shard of the sum of whole over all ranks to part, which
// may be that shard of whole.
func (c *Comm) ReduceScatter(ctx context.Context, part, whole device.Tensor) (*Work, error) {
	return c.start(ctx, &operation{kind: collective.KindReduceScatter, send: whole, recv: part})
}

// AllGather starts to copy every rank's shard to its position in whole. Part may be in whole.
func (c *Comm) AllGather(ctx context.Context, whole, part device.Tensor) (*Work, error) {
	return c.start(ctx, &operation{kind: collective.KindAllGather, send: part, recv: whole})
}

// start starts an operation. It returns when the operation is on the stream.
func (c *Comm) start(ctx context.Context, o *operation) (*Work, error) {
	checked, err := c.begin(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx, o, o.launched); err != nil {
		return nil, err
	}
	return &Work{c, o, checked}, nil
}

// begin passes an operation to the lane, unless its arguments are wrong. The returned channel receives
// the result of the ranks' check.
func (c *Comm) begin(ctx context.Context, o *operation) (checked <-chan error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.after, o.number, o.launched, o.done = c.after, c.next, make(chan struct{}), make(chan struct{})
	c.after = nil
	if c.closed {
		return nil, errClosed
	}
	if err := c.failure(); err != nil {
		return nil, err
	}
	c.next++
	if err := o.check(c.Size()); err != nil {
		return nil, c.fail(o.kind.String(), o.number, err)
	}
	checked = c.checks.add(o)
	c.begun.Store(o)
	c.lane.begin(ctx, o)
	return checked, nil
}

// wait returns when the channel of an operation is closed, or the operation has failed. After a
// failure, it returns when NCCL no longer uses the buffers, or after a timeout.
func (c *Comm) wait(ctx context.Context, o *operation, until <-chan struct{}) error {
	select {
	case <-until:
		select {
		case <-o.done:
			return o.err
		default:
			return nil
		}
	case <-c.ctx.Done():
	case <-ctx.Done():
		c.failed(o, context.Cause(ctx))
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
	well := c.idle() && c.checks.waitAll() && c.alarms.end() && c.failure() == nil
	_ = c.record(errClosed)
	c.cancel(errClosed)
	err := c.lane.close(well)
	c.closeHosts()
	return err
}

// idle reports whether all operations have ended on this rank.
func (c *Comm) idle() bool {
	last := c.begun.Load()
	if last == nil {
		return true
	}
	select {
	case <-last.done:
		return true
	default:
		return false
	}
}

// waitForGroup waits a few seconds for goroutines, and reports whether they have ended.
func (c *Comm) waitForGroup(group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(closeTimeout / 2):
	case <-c.ctx.Done():
	}
	return false
}

func (c *Comm) closeHosts() {
	for _, h := range c.hosts {
		_ = h.Close() // the caller's communicator reports the end
	}
}
