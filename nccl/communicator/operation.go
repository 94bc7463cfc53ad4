package communicator

import (
	"time"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// An operation is a call in progress.
type operation struct {
	call   collective.Call
	number uint64
	after  Event   // event to wait for, or nil
	before Event   // event to record, or nil
	copies *copies // GPU copies of host buffers, or nil

	event Event     // recorded when the stream has completed it
	began time.Time // when the GPU reached it, for the deadline
	done  chan struct{}
	err   error
}

var types = map[collective.Type]libnccl.Type{
	element.Float32: libnccl.Float32, element.Float64: libnccl.Float64, element.BFloat16: libnccl.BFloat16,
	element.Float16: libnccl.Float16, element.Int8: libnccl.Int8, element.Uint8: libnccl.Uint8, element.Int32: libnccl.Int32,
	element.Uint32: libnccl.Uint32, element.Int64: libnccl.Int64, element.Uint64: libnccl.Uint64,
}

var ops = map[collective.Op]libnccl.Op{
	collective.Sum: libnccl.Sum, collective.Mean: libnccl.Avg, collective.Max: libnccl.Max, collective.Min: libnccl.Min,
	collective.Product: libnccl.Prod,
}

// launch puts a call on the lane's stream.
func (l *lane) launch(c *collective.Call) error {
	n, width := l.size, c.Type.Size()
	t, o := types[c.Type], ops[c.Op]
	send, recv := unsafe.Pointer(unsafe.SliceData(c.Send)), unsafe.Pointer(unsafe.SliceData(c.Recv))
	count := c.Part(n) / width
	if c.Kind == collective.KindReceive {
		count = len(c.Recv) / width
	}
	if count == 0 && c.Kind != collective.KindBarrier {
		return nil
	}
	switch nc := l.library; c.Kind {
	case collective.KindBarrier:
		return nc.AllReduce(l.scratch, l.scratch, 1, libnccl.Uint8, libnccl.Max, l.comm, l.stream.Handle())
	case collective.KindBroadcast:
		return nc.Broadcast(send, recv, count, t, c.Root, l.comm, l.stream.Handle())
	case collective.KindReduce:
		return nc.Reduce(send, recv, count, t, o, c.Root, l.comm, l.stream.Handle())
	case collective.KindAllReduce:
		return nc.AllReduce(send, recv, count, t, o, l.comm, l.stream.Handle())
	case collective.KindReduceScatter:
		return nc.ReduceScatter(send, recv, count, t, o, l.comm, l.stream.Handle())
	case collective.KindAllGather:
		return nc.AllGather(send, recv, count, t, l.comm, l.stream.Handle())
	case collective.KindSend:
		return nc.Send(send, count, t, c.Root, l.comm, l.stream.Handle())
	case collective.KindReceive:
		return nc.Recv(recv, count, t, c.Root, l.comm, l.stream.Handle())
	}
	return l.messages(c, count, t)
}

// messages performs a call that NCCL has no operation for, as one group of sends and receives,
// including those from a rank to itself.
func (l *lane) messages(c *collective.Call, count int, t libnccl.Type) error {
	part := func(b []byte, r int) unsafe.Pointer {
		return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), r*count*c.Type.Size())
	}
	send := func(r int, p unsafe.Pointer) func() error {
		return func() error { return l.library.Send(p, count, t, r, l.comm, l.stream.Handle()) }
	}
	receive := func(r int, p unsafe.Pointer) func() error {
		return func() error { return l.library.Recv(p, count, t, r, l.comm, l.stream.Handle()) }
	}
	var calls []func() error
	for r := range l.size {
		switch c.Kind {
		case collective.KindGather:
			if l.rank == c.Root {
				calls = append(calls, receive(r, part(c.Recv, r)))
			}
		case collective.KindScatter:
			if l.rank == c.Root {
				calls = append(calls, send(r, part(c.Send, r)))
			}
		case collective.KindAllToAll:
			calls = append(calls, send(r, part(c.Send, r)), receive(r, part(c.Recv, r)))
		}
	}
	switch c.Kind {
	case collective.KindGather:
		calls = append(calls, send(c.Root, part(c.Send, 0)))
	case collective.KindScatter:
		calls = append(calls, receive(c.Root, part(c.Recv, 0)))
	}
	if err := l.library.GroupStart(); err != nil {
		return err
	}
	var failed error
	for _, call := range calls {
		if failed = call(); failed != nil {
			break
		}
	}
	if err := l.library.GroupEnd(); failed == nil {
		failed = err
	}
	return failed
}
