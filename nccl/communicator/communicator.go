package communicator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// Options are the settings of this rank's communicator.
type Options struct {
	Library *libnccl.Library
	GPU     GPU
	// Control connects the hosts of the same ranks. It carries NCCL's unique ID and the ranks'
	// messages about operations. The caller still owns it, but must not use it during Connect,
	// Split, and Close. If NCCL fails, Control fails also, so that all ranks are notified.
	Control collective.Communicator
	// Check makes the ranks compare the arguments of each operation.
	Check bool
	// Host is the name of this host and Interface the value of NCCL_SOCKET_IFNAME, for
	// messages.
	Host, Interface string
	// ConnectTimeout limits Connect and the first message between two ranks. Timeout limits
	// each operation.
	ConnectTimeout, Timeout time.Duration

	world int // rank in the attempt, if the communicator is a part
}

// A Comm is an NCCL communicator. It implements [collective.Communicator] on GPU memory.
type Comm struct {
	options      Options
	peers        []collective.Peer // by rank: rank in the attempt, and host
	lane         *lane
	checks       *checks
	pointToPoint *pointToPoint
	hosts        []collective.Communicator // host communicators that this Comm created
	cancel       context.CancelCauseFunc   // cancels ctx at the first failure
	ctx          context.Context

	mu     sync.Mutex // ensures that all checks and streams see operations in one order
	next   uint64
	last   *operation
	after  Event
	before Event
	closed bool

	failing sync.Mutex
	broken  error
}

// Connect creates a communicator of all ranks of o.Control. All of them must call it.
func Connect(ctx context.Context, o Options) (*Comm, error) {
	o.world = o.Control.Rank()
	c, err := connectAs(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("connect the GPUs: %w", err)
	}
	return c, nil
}

// connectAs creates a communicator for a rank whose rank in the attempt is known.
func connectAs(ctx context.Context, o Options) (*Comm, error) {
	return connect(ctx, o, func(c *Comm, ctx context.Context) error {
		id, err := c.uniqueID(ctx)
		if err == nil {
			err = c.lane.connect(ctx, id, o.ConnectTimeout)
		}
		return c.explain(err, id)
	})
}

// connect creates a communicator. begin initializes its lane.
func connect(ctx context.Context, o Options, begin func(*Comm, context.Context) error) (*Comm, error) {
	ctx = collective.WithTimeout(ctx, o.ConnectTimeout)
	c := &Comm{options: o}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := c.exchangePeerInfo(ctx)
	if err == nil {
		c.lane, err = openLane(&c.options, o.Control.Rank(), o.Control.Size(), c.failed)
	}
	// A rank without a lane must notify the others, or they wait for it.
	if all := c.runOnAllRanks(ctx, func(ctx context.Context) error {
		if err == nil {
			err = begin(c, ctx)
		}
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
	return nil, err
}

// Rank returns the rank of this process, from 0 to Size-1.
func (c *Comm) Rank() int { return c.options.Control.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.options.Control.Size() }

// Path returns a path which shows that NCCL chooses the algorithm.
func (c *Comm) Path(collective.Call) collective.Path {
	return collective.Path{Transport: "nccl " + c.options.Library.Version.String(), Algorithm: "chosen by nccl"}
}

// After makes the next call wait for a GPU event, on the GPU.
func (c *Comm) After(event Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = event
}

// Before makes the next call record an event on the GPU when it ends there. Streams that wait
// for the event continue without the host. The result of the ranks' check is known only when
// the call's request is done.
func (c *Comm) Before(event Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = event
}

// Do performs a call.
func (c *Comm) Do(ctx context.Context, call collective.Call) error { return c.start(ctx, call, nil)() }

// Start starts a call. When it returns, the call's position in the order of all calls is
// fixed, and an event of [Comm.Before] is recorded on the stream.
func (c *Comm) Start(ctx context.Context, call collective.Call) *collective.Request {
	return collective.Begin(c.start(ctx, call, nil))
}

// start starts a call. The returned function waits for its end.
func (c *Comm) start(ctx context.Context, call collective.Call, k *copies) func() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &operation{call: call, after: c.after, before: c.before, copies: k, done: make(chan struct{})}
	c.after, c.before = nil, nil
	err := c.failure()
	if c.closed {
		err = errClosed
	}
	if err != nil {
		return func() error { return err }
	}
	if call.Kind == collective.KindSend || call.Kind == collective.KindReceive {
		o.number = uint64(max(call.Tag, 0))
		if err := call.Check(c.Rank(), c.Size()); err != nil {
			return func() error { return c.fail(call.Kind.String(), o.number, err) }
		}
		return c.pointToPoint.start(ctx, o)
	}
	o.number = c.next
	c.next++
	wrong := call.Check(c.Rank(), c.Size())
	checked := c.checks.add(o, wrong)
	if wrong == nil {
		c.last = o
		c.lane.begin(ctx, o)
	}
	return func() error {
		if wrong == nil {
			if err := c.wait(ctx, o); err != nil {
				return err
			}
		}
		select {
		case err := <-checked:
			if err != nil {
				return c.fail(call.Kind.String(), o.number, err)
			}
			return nil
		case <-ctx.Done():
			return c.fail(call.Kind.String(), o.number, context.Cause(ctx))
		}
	}
}

// wait returns when an operation has ended on the GPU. After a failure, it returns when NCCL
// no longer uses the buffers, or after a timeout.
func (c *Comm) wait(ctx context.Context, o *operation) error {
	select {
	case <-o.done:
	case <-c.ctx.Done():
	case <-ctx.Done():
		_ = c.fail(o.call.Kind.String(), o.number, context.Cause(ctx))
	}
	select {
	case <-o.done:
		return o.err
	case <-time.After(closeTimeout):
		return errors.Join(c.failure(), fmt.Errorf("NCCL did not release the buffers within %s", closeTimeout))
	}
}

// Split creates communicators of the ranks with the same color, ordered by key and then by
// rank. Every rank must call it after its operations have ended. It returns nil for a negative
// color.
func (c *Comm) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	part, err := c.SplitGPUs(ctx, color, key)
	if part == nil {
		return nil, err // avoid a non-nil interface with a nil pointer
	}
	return part, err
}

// AllocBytes returns zeroed GPU memory that is valid until Close, for [collective.Alloc].
func (c *Comm) AllocBytes(_ context.Context, bytes int) (b []byte, err error) {
	in := c.lane.thread.do(c.options.Timeout, func() {
		var p *piece
		if p, err = c.lane.pool.take(c.lane.gpu, bytes); err == nil {
			b = unsafe.Slice((*byte)(p.gpu), bytes)
			clear(p.host.Bytes()[:bytes])
			err = c.lane.stream.Upload(p.gpu, p.host, bytes)
		}
	})
	if !in {
		return nil, errors.Join(c.failure(), errors.New("allocate GPU memory: NCCL or the driver does not return"))
	}
	return b, err
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
	err := errors.Join(c.lane.close(well), c.pointToPoint.close(well))
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
