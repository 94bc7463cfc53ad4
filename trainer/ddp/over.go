package ddp

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Over returns the operations of c for a [Sharder] whose device uses host memory.
func Over(c collective.Communicator) Communicator { return over{tensors{c}} }

// OverDevice returns the operations for a device with its own memory, such as a GPU. The
// communicator onDevice works on device memory. The communicator host, which has the same ranks,
// works on host memory. See [Follower.Mark] for mark.
func OverDevice(onDevice, host collective.Communicator, mark func() func() error) Follower {
	return beside{tensors{onDevice}, host, mark}
}

// tensors implements collectives on tensors.
type tensors struct{ c collective.Communicator }

// typeOf returns the element type for collectives on t.
func typeOf(t device.Tensor) collective.Type {
	switch t.Type() {
	case device.Float32:
		return element.Float32
	case device.BFloat16:
		return element.BFloat16
	}
	panic(fmt.Sprintf("ddp: a tensor of %v between ranks", t.Type()))
}

// memory returns the tensor's memory, which need not be addressable by the host.
func memory(t device.Tensor) []byte {
	return unsafe.Slice((*byte)(t.Base()), t.Len()*t.Type().Size())
}

func (o tensors) AllReduce(ctx context.Context, buf device.Tensor) error {
	return o.c.Do(ctx, collective.Call{Kind: collective.KindAllReduce, Type: typeOf(buf), Op: collective.Sum, Send: memory(buf), Recv: memory(buf)})
}

func (o tensors) ReduceScatter(ctx context.Context, part, whole device.Tensor) error {
	return o.c.Do(ctx, collective.Call{Kind: collective.KindReduceScatter, Type: typeOf(whole), Op: collective.Sum, Send: memory(whole), Recv: memory(part)})
}

func (o tensors) AllGather(ctx context.Context, whole, part device.Tensor) error {
	return o.c.Do(ctx, collective.Call{Kind: collective.KindAllGather, Type: typeOf(whole), Send: memory(part), Recv: memory(whole)})
}

func (o tensors) Rank() int { return o.c.Rank() }

func (o tensors) Size() int { return o.c.Size() }

type over struct{ tensors }

func (o over) AllReduceFloat64(ctx context.Context, buf []float64) error {
	return o.c.Do(ctx, collective.AllReduce(buf, collective.Sum))
}

func (o over) Broadcast(ctx context.Context, buf []byte, root int) error {
	return o.c.Do(ctx, collective.Broadcast(buf, root))
}

// Alloc returns memory that the other ranks of the node can read, or nil if c has no such memory.
func (o over) Alloc(ctx context.Context, n int) ([]float32, error) {
	return collective.Alloc[float32](ctx, o.c, n)
}

// beside combines a device's communicator with the host's.
type beside struct {
	tensors
	host collective.Communicator
	mark func() func() error
}

func (b beside) AllReduceFloat64(ctx context.Context, buf []float64) error {
	return b.host.Do(ctx, collective.AllReduce(buf, collective.Sum))
}

func (b beside) Broadcast(ctx context.Context, buf []byte, root int) error {
	return b.host.Do(ctx, collective.Broadcast(buf, root))
}

// Mark implements [Follower].
func (b beside) Mark() func() error { return b.mark() }
