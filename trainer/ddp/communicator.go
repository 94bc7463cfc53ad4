package ddp

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// NewCommunicator returns the operations of c for a [Sharder] whose device uses host memory.
func NewCommunicator(c collective.Communicator) Communicator { return hostComm{c: c} }

// NewDeviceCommunicator returns a communicator for a device with its own memory, such as a GPU. The
// communicator host, which has the same ranks, works on host memory. See [Communicator.Mark] for mark.
func NewDeviceCommunicator(o DeviceOperations, host collective.Communicator, mark func() func() error) Communicator {
	return deviceComm{o, HostCommunicator{}, host, mark}
}

// hostComm implements collectives on tensors in host memory.
type hostComm struct {
	HostCommunicator
	c collective.Communicator
}

// typeOf returns the element type for collectives on t.
func typeOf(t device.Tensor) collective.Type {
	switch t.Type() {
	case device.Float32:
		return element.Float32
	case device.BFloat16:
		return element.BFloat16
	}
	panic(fmt.Sprintf("ddp: no collective for a tensor of %v", t.Type()))
}

// tensorBytes returns the tensor's memory.
func tensorBytes(t device.Tensor) []byte {
	return unsafe.Slice((*byte)(t.Base()), t.Bytes())
}

func (o hostComm) AllReduce(ctx context.Context, buf device.Tensor) (Work, error) {
	return nil, o.c.Do(ctx, collective.Call{Kind: collective.KindAllReduce, Type: typeOf(buf), Op: collective.Sum, Send: tensorBytes(buf), Recv: tensorBytes(buf)})
}

func (o hostComm) ReduceScatter(ctx context.Context, part, whole device.Tensor) (Work, error) {
	return nil, o.c.Do(ctx, collective.Call{Kind: collective.KindReduceScatter, Type: typeOf(whole), Op: collective.Sum, Send: tensorBytes(whole), Recv: tensorBytes(part)})
}

func (o hostComm) AllGather(ctx context.Context, whole, part device.Tensor) (Work, error) {
	return nil, o.c.Do(ctx, collective.Call{Kind: collective.KindAllGather, Type: typeOf(whole), Send: tensorBytes(part), Recv: tensorBytes(whole)})
}

func (o hostComm) Rank() int { return o.c.Rank() }

func (o hostComm) Size() int { return o.c.Size() }

func (o hostComm) Broadcast(ctx context.Context, buf []byte, root int) error {
	return o.c.Do(ctx, collective.Broadcast(buf, root))
}

// Alloc returns memory that the other ranks of the node can read, or nil if c has no such memory.
func (o hostComm) Alloc(ctx context.Context, n int) ([]float32, error) {
	return collective.Alloc[float32](ctx, o.c, n)
}

// deviceComm combines a device's communicator with the host's.
type deviceComm struct {
	DeviceOperations
	HostCommunicator
	host collective.Communicator
	mark func() func() error
}

func (b deviceComm) Broadcast(ctx context.Context, buf []byte, root int) error {
	return b.host.Do(ctx, collective.Broadcast(buf, root))
}

// Mark implements [Communicator].
func (b deviceComm) Mark() func() error { return b.mark() }
