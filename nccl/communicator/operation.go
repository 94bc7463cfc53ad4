package communicator

import (
	"context"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// An operation is a call in progress.
type operation struct {
	kind       collective.Kind // KindAllReduce, KindReduceScatter, or KindAllGather
	send, recv device.Tensor
	number     uint64
	after      Event // event to wait for, or nil

	begin, end Event         // recorded in the stream before and after it
	launched   chan struct{} // closed when it is in the stream
	began      time.Time     // when the GPU reached it, for the deadline
	isOverdue  bool
	done       chan struct{} // closed when it has ended, or after a failure
	ended      time.Time     // after done: the time at which the host noticed the end
	took       time.Duration // after done: its time on the GPU
	err        error         // after done
}

// Work is an operation in the stream. Its buffers belong to it until it has ended.
type Work struct {
	comm    *Comm
	op      *operation
	checked <-chan error
}

// End returns the event at the end of the operation, for other streams that wait for it. It is valid
// until Release.
func (w *Work) End() Event { return w.op.end }

// Wait waits on the host until the operation has ended. It must be called only once.
func (w *Work) Wait(ctx context.Context) error {
	c, o := w.comm, w.op
	err := c.wait(ctx, o, o.done)
	if err != nil {
		return err
	}
	select {
	case err = <-w.checked:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return c.fail(o.kind.String(), o.number, err)
	}
	return nil
}

// Time returns the time at which the host noticed the end of the operation, and the time that the
// operation took on the GPU. Wait must have returned no error.
func (w *Work) Time() (ended time.Time, took time.Duration) { return w.op.ended, w.op.took }

// Release releases the events of an operation that has ended.
func (w *Work) Release() {
	w.comm.lane.release(w.op.begin, w.op.end)
	w.op.begin, w.op.end = nil, nil
}

// types holds the element types of calls, and their names for NCCL.
var types = map[device.Type]struct {
	nccl libnccl.Type
	host collective.Type
}{
	device.Float32:  {libnccl.Float32, element.Float32},
	device.BFloat16: {libnccl.BFloat16, element.BFloat16},
}

// check returns an error if the arguments are not valid on a communicator of n ranks.
func (o *operation) check(n int) error {
	send, recv := o.send.Len(), o.recv.Len()
	switch o.kind {
	case collective.KindReduceScatter:
		recv *= n
	case collective.KindAllGather:
		send *= n
	}
	if _, ok := types[o.send.Type()]; !ok || o.send.Type() != o.recv.Type() {
		return fmt.Errorf("a buffer of %v to a buffer of %v", o.send.Type(), o.recv.Type())
	}
	if send != recv {
		return fmt.Errorf("a buffer of %d elements to a buffer of %d elements, with %d ranks", o.send.Len(), o.recv.Len(), n)
	}
	return nil
}

// signature returns what must be equal on all ranks.
func (o *operation) signature() collective.Signature {
	s := collective.Signature{Kind: uint8(o.kind), Type: uint8(types[o.send.Type()].host), Bytes: uint64(max(o.send.Bytes(), o.recv.Bytes()))}
	if o.kind != collective.KindAllGather {
		s.Op = uint8(collective.Sum)
	}
	return s
}

func encodeSignature(s collective.Signature) []int64 {
	return []int64{int64(s.Kind), int64(s.Type), int64(s.Op), int64(s.Root), int64(s.Bytes)}
}

func decodeSignature(v []int64) collective.Signature {
	return collective.Signature{Kind: uint8(v[0]), Type: uint8(v[1]), Op: uint8(v[2]), Root: int32(v[3]), Bytes: uint64(v[4])}
}

// launch puts an operation on the lane's stream.
func (l *lane) launch(o *operation) error {
	count := min(o.send.Len(), o.recv.Len())
	if count == 0 {
		return nil
	}
	send, recv, t := uintptr(o.send.Addr()), uintptr(o.recv.Addr()), types[o.send.Type()].nccl
	switch o.kind {
	case collective.KindReduceScatter:
		return l.library.ReduceScatter(send, recv, count, t, libnccl.Sum, l.comm, l.stream.Handle())
	case collective.KindAllGather:
		return l.library.AllGather(send, recv, count, t, l.comm, l.stream.Handle())
	}
	return l.library.AllReduce(send, recv, count, t, libnccl.Sum, l.comm, l.stream.Handle())
}
