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

// Options describe this rank's communicator.
type Options struct {
	Library *libnccl.Library
	GPU     GPU
	// Control connects the same ranks by their hosts. It carries NCCL's unique id and
	// what ranks tell each other about operations. It stays the caller's, who does not
	// use it while Connect, Split and Close run; when NCCL fails, so does it, so that all
	// ranks learn of it.
	Control collective.Communicator
	// Check has ranks compare the arguments of each operation.
	Check bool
	// Host is this host's name, and Interface what NCCL_SOCKET_IFNAME holds, for messages.
	Host, Interface string
	// ConnectTimeout bounds Connect and each first message between two ranks, Timeout
	// each operation.
	ConnectTimeout, Timeout time.Duration

	world int // this rank's place among all of the attempt, of a part
}

// Comm is NCCL's communicator of some ranks. It implements [collective.Communicator] on
// memory of the GPU.
type Comm struct {
	options Options
	peers   []collective.Peer // by rank: place among all ranks of the attempt, and host
	lane    *lane
	checks  *checks
	mailbox *mailbox
	hosts   []collective.Communicator // made here
	cancel  context.CancelCauseFunc   // of ctx, which ends with the first failure
	ctx     context.Context

	mu     sync.Mutex // keeps operations in one order everywhere
	next   uint64
	last   *operation
	after  Event
	before Event
	closed bool

	failing sync.Mutex
	broken  error
}

// Connect makes a communicator of all ranks of o.Control, which must all call it.
func Connect(ctx context.Context, o Options) (*Comm, error) {
	o.world = o.Control.Rank()
	c, err := connectAs(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("connect the GPUs: %w", err)
	}
	return c, nil
}

// connectAs is Connect of a rank that has its place among all of the attempt.
func connectAs(ctx context.Context, o Options) (*Comm, error) {
	return connect(ctx, o, func(c *Comm, ctx context.Context) error {
		id, err := c.uniqueID(ctx)
		if err == nil {
			err = c.lane.connect(ctx, id, o.ConnectTimeout)
		}
		return c.explain(err, id)
	})
}

// connect makes a communicator whose lane is made by begin.
func connect(ctx context.Context, o Options, begin func(*Comm, context.Context) error) (*Comm, error) {
	ctx = collective.WithTimeout(ctx, o.ConnectTimeout)
	c := &Comm{options: o}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := c.meet(ctx)
	if err == nil {
		c.lane, err = openLane(&c.options, o.Control.Rank(), o.Control.Size(), c.failed)
	}
	// A rank that has no lane must say so, or all others wait for it.
	if all := c.listen(ctx, func(ctx context.Context) error {
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

// Rank is this rank's number, 0 to Size-1.
func (c *Comm) Rank() int { return c.options.Control.Rank() }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.options.Control.Size() }

// Path says that NCCL chooses by itself.
func (c *Comm) Path(collective.Call) collective.Path {
	return collective.Path{Transport: "nccl " + c.options.Library.Version.String(), Algorithm: "chosen by nccl"}
}

// After has the next call wait for an event of the GPU, on the GPU.
func (c *Comm) After(event Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = event
}

// Before has the next call leave an event on the GPU when it is done there: streams
// that wait for it go on without the host. Whether the ranks agree is known only when
// the call's request is done.
func (c *Comm) Before(event Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = event
}

// Do performs a call.
func (c *Comm) Do(ctx context.Context, call collective.Call) error { return c.start(ctx, call, nil)() }

// Start begins a call: when it returns, the call has its place in the order of all, and
// an event of [Comm.Before] its place on the stream.
func (c *Comm) Start(ctx context.Context, call collective.Call) *collective.Request {
	return collective.Begin(c.start(ctx, call, nil))
}

// start begins a call; what it returns waits for its end.
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
		return c.mailbox.start(ctx, o)
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

// wait returns when an operation has ended on the GPU, and after a failure when its
// buffers are free, unless NCCL does not let go of them.
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
	case <-time.After(patienceAtEnd):
		return errors.Join(c.failure(), fmt.Errorf("NCCL did not let go of buffers within %s", patienceAtEnd))
	}
}

// Split makes communicators of the ranks that give the same color, ordered by key, then
// by rank. Every rank must call it when its operations are done. It is nil with a
// negative color.
func (c *Comm) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	part, err := c.SplitGPUs(ctx, color, key)
	if part == nil {
		return nil, err // not a communicator that holds nothing
	}
	return part, err
}

// AllocBytes returns zeroed memory of the GPU that stays until Close, for
// [collective.Alloc].
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
		return nil, errors.Join(c.failure(), errors.New("memory of the GPU: NCCL or the driver does not return"))
	}
	return b, err
}

// Close ends the communicator. Where all operations are done it waits a few seconds for
// other ranks that are not through with theirs; else it aborts.
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
	well := c.idle() && c.checks.end() && c.failure() == nil
	_ = c.record(errClosed)
	c.cancel(errClosed)
	err := errors.Join(c.lane.close(well), c.mailbox.close(well))
	c.closeHosts()
	return err
}

// idle reports whether all operations have ended here.
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
		_ = h.Close() // a part of the caller's, whose end is told by that
	}
}
