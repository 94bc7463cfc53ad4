package communicator

import (
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

	event Event     // recorded when the stream has completed it
	began time.Time // when the GPU reached it, for the deadline
	done  chan struct{}
	err   error
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
