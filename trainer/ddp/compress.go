package ddp

import (
	"context"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// halves is room for n gradients in bfloat16. Operations use it in turn.
func (s *Sharder) halves(n int) device.Tensor {
	return device.At(device.BFloat16, s.half.Base(), n)
}

// A device's gradients are rounded, and widened, by the device, in order with what it
// computes: that is asked for where its other operations are, before a reduction is begun
// and when it is done. In between they are bfloat16 in the first half of their memory.

// packed is the bfloat16 tensor of as many elements in a float32 tensor's memory.
func packed(t device.Tensor) device.Tensor { return device.At(device.BFloat16, t.Base(), t.Len()) }

// beside says that gradients are compressed in a device's memory.
func (s *Sharder) beside() bool { return s.bf16 && !s.memory.Host() }

// pack rounds a bucket's gradients.
func (s *Sharder) pack(grad device.Tensor) {
	half := s.halves(grad.Len())
	s.memory.Cast(half, grad)
	s.memory.Copy(packed(grad), half)
}

// unpack widens what this rank has of a bucket's sums, which must be there.
func (s *Sharder) unpack(i int) {
	b := &s.buckets[i]
	from := packed(b.gradPart)
	if s.Strategy != DDP && !s.EachBatch() {
		from = s.mine(packed(b.grad))
	}
	half := s.halves(b.gradPart.Len())
	s.memory.Copy(half, from)
	s.memory.Cast(b.gradPart, half)
}

// reduceAll replaces gradients by their sums over all ranks. With bf16 they are rounded,
// added up, rounding each sum, and widened, as by PyTorch's bf16_compress_hook; that they
// come divided by the number of ranks keeps sums as small as they are. Every rank widens
// the same bits, so replicas stay equal.
func (s *Sharder) reduceAll(ctx context.Context, grads device.Tensor) error {
	switch {
	case !s.bf16:
		return s.comm.AllReduce(ctx, grads)
	case s.beside():
		return s.comm.AllReduce(ctx, packed(grads))
	}
	half := s.halves(grads.Len())
	element.Round(bits(half), grads.Floats())
	if err := s.comm.AllReduce(ctx, half); err != nil {
		return err
	}
	element.Widen(grads.Floats(), bits(half))
	return nil
}

// reduceMine puts this rank's part of the sums of gradients over all ranks into part.
// The rest holds nothing of meaning then.
func (s *Sharder) reduceMine(ctx context.Context, part, grads device.Tensor) error {
	if !s.bf16 {
		return s.comm.ReduceScatter(ctx, part, grads)
	}
	half := s.halves(grads.Len())
	mine := s.mine(half)
	element.Round(bits(half), grads.Floats())
	if err := s.comm.ReduceScatter(ctx, mine, half); err != nil {
		return err
	}
	element.Widen(part.Floats(), bits(mine))
	return nil
}

// bits is a bfloat16 tensor in the words of package element.
func bits(t device.Tensor) []element.BF16 {
	return unsafe.Slice((*element.BF16)(t.Base()), t.Len())
}
