package communicator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// A pointToPoint implements send and receive. NCCL has no tags: it matches the messages of two
// ranks by order, and each message blocks its stream. Therefore each pair of ranks has a
// separate NCCL communicator per direction. The ranks agree over their hosts on the next
// message: the receiver sends what it is ready for, and the sender replies with the position
// of the message in the order.
type pointToPoint struct {
	comm *Comm
	host collective.Communicator

	mu     sync.Mutex
	routes map[route]*channel
	broken error
}

// A route is a direction between this rank and a peer.
type route struct {
	peer int
	kind collective.Kind // KindSend or KindReceive
}

// A channel is the NCCL communicator of a route.
type channel struct {
	id   libnccl.UniqueID
	next uint64 // position of the next message to send

	once sync.Once
	lane *lane
	err  error

	mu   sync.Mutex
	turn sync.Cond
	now  uint64 // position of the next message to put on the stream
}

// A recvReady is the receiver's message, clear to send.
type recvReady struct{ Type, Bytes uint64 }

// A sendReady is the sender's reply, ready to send.
type sendReady struct {
	Position uint64
	ID       libnccl.UniqueID
	Message  recvReady
}

func newPointToPoint(c *Comm) *pointToPoint {
	return &pointToPoint{comm: c, host: c.hosts[2], routes: map[route]*channel{}}
}

func (m *pointToPoint) channelFor(r route) *channel {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.routes[r]
	if w == nil {
		w = new(channel)
		w.turn.L = &w.mu
		m.routes[r] = w
	}
	return w
}

// start starts a message. The returned function waits for its end. Messages with the same tag
// are matched in the order of the calls.
func (m *pointToPoint) start(ctx context.Context, o *operation) func() error {
	peer, kind := o.call.Root, o.call.Kind
	ctx, cancel := context.WithCancelCause(collective.WithTimeout(ctx, m.comm.options.Timeout))
	with := context.AfterFunc(m.comm.ctx, func() { cancel(context.Cause(m.comm.ctx)) })
	w := m.channelFor(route{peer, kind})
	var answer []byte
	var said, asked *collective.Request
	if kind == collective.KindSend {
		answer = make([]byte, binary.Size(recvReady{}))
		said = m.host.Start(ctx, collective.Receive(answer, peer, 2*o.call.Tag))
	} else {
		ready := encode(recvReady{uint64(o.call.Type), uint64(len(o.call.Recv))})
		asked = m.host.Start(ctx, collective.Send(ready, peer, 2*o.call.Tag))
		answer = make([]byte, binary.Size(sendReady{}))
		said = m.host.Start(ctx, collective.Receive(answer, peer, 2*o.call.Tag+1))
	}
	finished := collective.Begin(func() error {
		defer cancel(nil)
		defer with()
		err := said.Wait()
		if err == nil && kind == collective.KindSend {
			err = m.send(ctx, w, o, answer)
		} else if err == nil {
			err = errors.Join(asked.Wait(), m.receive(ctx, w, o, answer))
		}
		if err != nil {
			return m.comm.fail(kind.String(), o.number, err)
		}
		return nil
	})
	return finished.Wait
}

// send replies to a receiver that is ready, and sends the message.
func (m *pointToPoint) send(ctx context.Context, w *channel, o *operation, answer []byte) error {
	var theirs recvReady
	decode(answer, &theirs)
	ours := recvReady{uint64(o.call.Type), uint64(len(o.call.Send))}
	answered := func(d sendReady) error {
		return m.host.Do(ctx, collective.Send(encode(d), o.call.Root, 2*o.call.Tag+1))
	}
	if ours != theirs {
		if err := answered(sendReady{Message: ours}); err != nil { // the receiver also detects the mismatch
			return err
		}
		return mismatchError(o, ours, theirs)
	}
	w.mu.Lock()
	if w.id == (libnccl.UniqueID{}) {
		id, err := m.comm.options.Library.NewUniqueID()
		if err != nil {
			w.mu.Unlock()
			return err
		}
		w.id = id
	}
	leaves := sendReady{Message: ours, ID: w.id, Position: w.next}
	w.next++
	w.mu.Unlock()
	if err := answered(leaves); err != nil {
		return err
	}
	return m.transfer(ctx, w, o, leaves)
}

// receive receives the message that a sender announced.
func (m *pointToPoint) receive(ctx context.Context, w *channel, o *operation, answer []byte) error {
	var theirs sendReady
	decode(answer, &theirs)
	ours := recvReady{uint64(o.call.Type), uint64(len(o.call.Recv))}
	if theirs.Message != ours {
		return mismatchError(o, ours, theirs.Message)
	}
	return m.transfer(ctx, w, o, theirs)
}

// mismatchError returns the error for a mismatch between the two ends of a message.
func mismatchError(o *operation, ours, theirs recvReady) error {
	signature := func(r recvReady) collective.Signature {
		return collective.Signature{Kind: uint8(o.call.Kind), Type: uint8(r.Type), Bytes: r.Bytes}
	}
	return &remoteError{o.call.Root, collective.Diverged(o.number, signature(ours), signature(theirs))}
}

// transfer transfers a message that both ranks have agreed on.
func (m *pointToPoint) transfer(ctx context.Context, w *channel, o *operation, sent sendReady) error {
	w.once.Do(func() { w.err = m.open(w, o.call, sent.ID) })
	if w.err != nil {
		return w.err
	}
	// The sender is rank 0 of the two ranks of a way.
	o.call.Root = 1
	if o.call.Kind == collective.KindReceive {
		o.call.Root = 0
	}
	if err := w.waitForTurn(ctx, sent.Position); err != nil {
		return err
	}
	w.lane.begin(ctx, o)
	w.advance()
	return m.comm.wait(ctx, o)
}

// open connects this rank to the other rank of a way.
func (m *pointToPoint) open(w *channel, c collective.Call, id libnccl.UniqueID) error {
	rank := 0
	if c.Kind == collective.KindReceive {
		rank = 1
	}
	l, err := openLane(&m.comm.options, rank, 2, m.comm.failed)
	if err != nil {
		return err
	}
	m.mu.Lock()
	w.lane = l
	if m.broken != nil {
		l.setFailure(m.broken)
	}
	m.mu.Unlock()
	limit := m.comm.options.ConnectTimeout
	return m.comm.explain(l.connect(m.comm.ctx, id, limit), id)
}

// waitForTurn waits until the message at the given position is next.
func (w *channel) waitForTurn(ctx context.Context, place uint64) error {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.turn.Broadcast()
	})
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.now != place {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		w.turn.Wait()
	}
	return nil
}

func (w *channel) advance() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	w.turn.Broadcast()
}

// give ends all ways with an error.
func (m *pointToPoint) give(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = err
	for _, w := range m.routes {
		if w.lane != nil {
			w.lane.setFailure(err)
		}
	}
}

func (m *pointToPoint) close(well bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, w := range m.routes {
		if w.lane != nil {
			errs = append(errs, w.lane.close(well))
		}
	}
	return errors.Join(errs...)
}

// encode encodes a fixed-size value, and unpack decodes it. Both ranks run the same program,
// which the rendezvous has verified.
func encode(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic(err) // not a fixed-size type
	}
	return b.Bytes()
}

func decode(b []byte, v any) {
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, v); err != nil {
		panic(err) // b has the size of v
	}
}
