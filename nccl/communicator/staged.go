package communicator

import (
	"context"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// staged is a communicator on memory of the host.
type staged struct{ *Comm }

// Staged is the communicator on memory of the host, which it copies to the GPU and
// back. What is done by it and by c itself has one order.
func (c *Comm) Staged() collective.Communicator { return staged{c} }

// Do performs a call.
func (s staged) Do(ctx context.Context, call collective.Call) error {
	return s.start(ctx, call, &copies{host: call})()
}

// Start begins a call.
func (s staged) Start(ctx context.Context, call collective.Call) *collective.Request {
	return collective.Begin(s.start(ctx, call, &copies{host: call}))
}

// Split is as [Comm.Split], for memory of the host.
func (s staged) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	part, err := s.SplitGPUs(ctx, color, key)
	if part == nil {
		return nil, err
	}
	return staged{part}, err
}

// copies are what a call on memory of the host has on the GPU. Its methods run on the
// lane's thread.
type copies struct {
	host       collective.Call
	send, recv *piece // nil for buffers without bytes
}

// in has a call work on copies.
func (k *copies) in(l *lane, c *collective.Call) (err error) {
	if k.send, c.Send, err = l.stage(c.Send); err != nil {
		return err
	}
	if k.recv, c.Recv, err = l.stage(c.Recv); err != nil {
		return err
	}
	rootOnly := c.Kind == collective.KindBroadcast || c.Kind == collective.KindScatter
	if k.send == nil || rootOnly && c.Root != l.rank {
		return nil
	}
	copy(k.send.host.Bytes(), k.host.Send)
	return l.stream.Upload(k.send.gpu, k.send.host, len(c.Send))
}

// stage returns memory in a buffer's place.
func (l *lane) stage(b []byte) (*piece, []byte, error) {
	if len(b) == 0 {
		return nil, nil, nil
	}
	p, err := l.pool.take(l.gpu, len(b))
	if err != nil {
		return nil, nil, err
	}
	return p, unsafe.Slice((*byte)(p.gpu), len(b)), nil
}

// gives reports whether the call has a result on this rank.
func (k *copies) gives(l *lane) bool {
	switch k.host.Kind {
	case collective.KindReduce, collective.KindGather:
		return k.recv != nil && k.host.Root == l.rank
	}
	return k.recv != nil
}

// out has the result be copied when it is there.
func (k *copies) out(l *lane) error {
	if !k.gives(l) {
		return nil
	}
	return l.stream.Download(k.recv.host, k.recv.gpu, len(k.host.Recv))
}

// arrived gives the caller the result.
func (k *copies) arrived(l *lane) {
	if k.gives(l) {
		copy(k.host.Recv, k.recv.host.Bytes())
	}
	l.pool.put(k.send)
	l.pool.put(k.recv)
}

// AllocBytes has none: any memory of the host will do.
func (s staged) AllocBytes(context.Context, int) ([]byte, error) { return nil, nil }
