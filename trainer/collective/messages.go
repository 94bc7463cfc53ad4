package collective

import (
	"context"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// eager is the largest buffer that is sent before the receiver has entered the operation and posted
// its buffer.
const eager = 256 << 10

// messages is the [engine] of ranks that communicate over the mesh.
type messages struct {
	*world
	id      uint64
	members []int
	rank    int
	why     string // why ranks of a node do not share memory

	incoming, work buffer // buffers of the operation in progress
}

// exchange is one operation in progress.
type exchange struct {
	*messages
	ctx   context.Context
	head  mesh.Head
	call  *Call
	n     int
	ranks int    // number of ranks in the reduction; more than n if each member has reduced a node
	steps uint32 // number of steps of the algorithm
	sent  []*mesh.Transfer
}

func (m *messages) run(ctx context.Context, sequence uint64, c *Call) error {
	if len(m.members) == 1 {
		c.copyOwn()
		return nil
	}
	return m.exchange(ctx, sequence, c, (*exchange).perform)
}

// exchange runs do as the operation, or a part of the operation, with the given sequence number.
func (m *messages) exchange(ctx context.Context, sequence uint64, c *Call, do func(*exchange) error) error {
	ctx, cancel := within(ctx, m.timeout)
	defer cancel()
	n := len(m.members)
	x := &exchange{messages: m, ctx: ctx, call: c, n: n, ranks: n,
		head: mesh.Head{Key: mesh.Key{Group: m.id, Sequence: sequence}, Signature: c.Signature(n)}}
	if err := m.mesh.Enter(m.id, sequence, x.head.Signature); err != nil {
		return err
	}
	if err := do(x); err != nil {
		return err
	}
	return x.flush()
}

// flush waits until all data is sent and the caller may reuse the buffers.
func (x *exchange) flush() error {
	for _, t := range x.sent {
		if err := x.await(t); err != nil {
			return err
		}
	}
	return nil
}

// await waits for a message and publishes the rank that it waits for.
func (x *exchange) await(t *mesh.Transfer) error {
	if t.Over() {
		return t.Wait(x.ctx)
	}
	if !x.call.Kind.IsDirect() {
		x.waiting.begin(t.Peer())
	}
	select {
	case <-t.Done():
	case <-x.ctx.Done():
	case <-x.detector.diverged:
		return x.detector.mismatch
	case <-x.ended:
		return &mesh.PeerError{Peer: x.world.rank, Err: errClosed}
	}
	err := t.Wait(x.ctx)
	if err == nil && !x.call.Kind.IsDirect() {
		x.waiting.end()
	}
	return err
}

// within returns a context with the timeout of an operation.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	timeout = TimeoutOf(ctx, timeout)
	return context.WithTimeoutCause(ctx, timeout, timeoutError(timeout))
}

func (x *exchange) perform() error {
	c := x.call
	switch c.Kind {
	case KindBarrier:
		return x.disseminate()
	case KindBroadcast:
		if len(c.Recv) <= fewStepsBelow {
			return x.treeBroadcast(c.Recv)
		}
		return x.chainBroadcast(c.Recv)
	case KindReduce:
		work := c.Recv
		if x.rank != c.Root {
			work = x.copied(c.Send) // only root's buffer changes
		}
		return x.reduceTo(evenly(work, x.n, c.Type.Size()), c.Root)
	case KindAllReduce:
		return x.reduceParts(evenly(c.Recv, x.n, c.Type.Size()), true)
	case KindReduceScatter:
		d := evenly(x.copied(c.Send), x.n, c.Type.Size())
		if err := x.reduceParts(d, false); err != nil {
			return err
		}
		copy(c.Recv, d.part(x.rank))
		return nil
	case KindAllGather:
		copy(c.Recv[x.rank*len(c.Send):], c.Send)
		return x.gatherParts(evenly(c.Recv, x.n, c.Type.Size()))
	case KindGather:
		return x.gather()
	case KindScatter:
		return x.scatter()
	case KindAllToAll:
		return x.allToAll()
	}
	return fmt.Errorf("unknown operation %v", c.Kind)
}

// copied returns a copy that is valid until the end of the operation.
func (x *exchange) copied(b []byte) []byte {
	work := x.work.get(len(b))
	copy(work, b)
	return work
}

func (m *messages) path(c *Call) Path {
	p := Path{Transport: m.world.messages, Why: m.why}
	switch c.Kind {
	case KindBarrier:
		p.Algorithm = "dissemination"
	case KindBroadcast:
		p.Algorithm = "chain"
		if len(c.Recv) <= fewStepsBelow {
			p.Algorithm = "tree"
		}
	case KindReduce, KindAllReduce, KindReduceScatter:
		p.Algorithm = string(ReduceAlgorithm(len(c.Send), len(m.members)))
	case KindAllGather:
		p.Algorithm = string(GatherAlgorithm(len(c.Recv), len(m.members)))
	default:
		p.Algorithm = "pairwise"
	}
	return p
}

func (*messages) alloc(context.Context, uint64, int) ([]byte, error) { return nil, nil }

// leave removes the group from the mesh. No operation of the group may follow.
func (m *messages) leave() { m.mesh.Leave(m.id) }

func (m *messages) close() error {
	m.leave()
	return nil
}

// readyStep marks the step of a message without data: the receiver is ready.
const readyStep = 1 << 31

// send queues the segments of b for a member. An empty buffer has one segment.
func (x *exchange) send(to int, step uint32, b []byte) {
	for i := uint32(0); ; i++ {
		now := b[:min(len(b), mesh.MaxSegment)]
		x.sendSegment(to, step, i, now)
		if b = b[len(now):]; len(b) == 0 {
			return
		}
	}
}

func (x *exchange) sendSegment(to int, step, i uint32, b []byte) {
	h := x.head
	h.Step, h.Segment = step, i
	x.sent = append(x.sent, x.mesh.Send(x.members[to], h, b))
}

// incoming is a buffer that is being received.
type incoming struct {
	step     uint32
	b        []byte
	segments []*mesh.Transfer
}

// post receives the segments of a member's buffer into b.
func (x *exchange) post(from int, step uint32, b []byte) incoming {
	h := x.head
	h.Step = step
	in := incoming{step: step, b: b}
	for {
		now := b[:min(len(b), mesh.MaxSegment)]
		in.segments = append(in.segments, x.mesh.Receive(x.members[from], h, now))
		h.Segment++
		if b = b[len(now):]; len(b) == 0 {
			return in
		}
	}
}

// wait waits for a whole buffer. It calls arrived, if not nil, for each segment on arrival.
func (x *exchange) wait(in incoming, arrived func(i uint32, from, to int)) error {
	for i, t := range in.segments {
		if err := x.await(t); err != nil {
			if x.steps > 1 && in.step < readyStep {
				err = atStep(err, in.step, x.steps)
			}
			return err
		}
		if arrived != nil {
			arrived(uint32(i), i*mesh.MaxSegment, min((i+1)*mesh.MaxSegment, len(in.b)))
		}
	}
	return nil
}

// atStep adds the step of the algorithm to an error.
func atStep(err error, step, steps uint32) error {
	if of, ok := err.(*mesh.PeerError); ok {
		return &mesh.PeerError{Peer: of.Peer, Err: fmt.Errorf("step %d of %d: %w", step+1, steps, of.Err)}
	}
	return err
}

// swap sends to one member while it receives from another.
func (x *exchange) swap(to, from int, step uint32, out, in []byte) error {
	receive := x.post(from, step, in)
	x.send(to, step, out)
	return x.wait(receive, nil)
}

// announce signals a member that this rank is ready for a large buffer.
func (x *exchange) announce(to int, bytes int) {
	if bytes > eager {
		x.sendSegment(to, readyStep, 0, nil)
	}
}

// awaitReady waits for the announcement of a member.
func (x *exchange) awaitReady(of int, bytes int) error {
	if bytes <= eager {
		return nil
	}
	return x.wait(x.post(of, readyStep, nil), nil)
}

// postAndSignal receives a member's buffer of a step into b. It signals the member if the buffer is
// large.
func (x *exchange) postAndSignal(from int, step uint32, b []byte) incoming {
	in := x.post(from, step, b)
	if len(b) > eager {
		x.sendSegment(from, readyStep|step, 0, nil)
	}
	return in
}

// receive receives a member's buffer of a step into b and waits for it.
func (x *exchange) receive(from int, step uint32, b []byte) error {
	return x.wait(x.postAndSignal(from, step, b), nil)
}

// sendWhenReady sends a buffer to a member, which must expect it. It waits for the signal if the
// buffer is large.
func (x *exchange) sendWhenReady(to int, step uint32, b []byte) error {
	if len(b) > eager {
		if err := x.wait(x.post(to, readyStep|step, nil), nil); err != nil {
			return err
		}
	}
	x.send(to, step, b)
	return nil
}

// receiveBuffer returns n bytes for incoming data, which are valid until the end of the operation.
func (x *exchange) receiveBuffer(n int) []byte { return x.incoming.get(n) }

// combine stores the reduction of the elements of two ranks in dst.
func (c *Call) combine(dst, low, high []byte) { c.Op.Combine(c.Type, dst, low, high) }
