package communicator

import (
	"context"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// A staged is a communicator on host memory.
type staged struct{ *Comm }

// Staged returns a communicator on host memory, which it copies to and from the GPU.
// Operations of both communicators share one order.
func (c *Comm) Staged() collective.Communicator { return staged{c} }

// Do performs a call.
func (s staged) Do(ctx context.Context, call collective.Call) error {
	return s.start(ctx, call, &copies{host: call})()
}

// Start starts a call.
func (s staged) Start(ctx context.Context, call collective.Call) *collective.Request {
	return collective.Begin(s.start(ctx, call, &copies{host: call}))
}

// Split creates communicators on host memory, like [Comm.Split].
func (s staged) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	part, err := s.SplitGPUs(ctx, color, key)
	if part == nil {
		return nil, err
	}
	return staged{part}, err
}

// copies are the GPU buffers of a call on host memory. Its methods run on the lane's thread.
type copies struct {
	host       collective.Call
	send, recv *piece // nil for empty buffers
}

// upload makes a call use GPU buffers and uploads its input.
func (k *copies) upload(l *lane, c *collective.Call) (err error) {
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

// stage returns GPU memory of the size of a buffer.
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

// hasResult reports whether the call has a result on this rank.
func (k *copies) hasResult(l *lane) bool {
	switch k.host.Kind {
	case collective.KindReduce, collective.KindGather:
		return k.recv != nil && k.host.Root == l.rank
	}
	return k.recv != nil
}

// download starts the copy of the result to the host.
func (k *copies) download(l *lane) error {
	if !k.hasResult(l) {
		return nil
	}
	return l.stream.Download(k.recv.host, k.recv.gpu, len(k.host.Recv))
}

// finish copies the result to the caller's buffer and returns the GPU buffers to the pool.
func (k *copies) finish(l *lane) {
	if k.hasResult(l) {
		copy(k.host.Recv, k.recv.host.Bytes())
	}
	l.pool.put(k.send)
	l.pool.put(k.recv)
}

// AllocBytes returns nil, because any host memory is suitable.
func (s staged) AllocBytes(context.Context, int) ([]byte, error) { return nil, nil }
