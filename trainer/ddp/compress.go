package ddp

import (
	"context"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// halves returns a bfloat16 scratch tensor of n gradients. Operations use it in turn.
func (s *Sharder) halves(n int) device.Tensor {
	return device.At(device.BFloat16, s.half.Base(), n)
}

// The device rounds and widens gradients in device memory, in order with its computation: it rounds
// before a reduction starts and widens after the reduction has ended. In between, the gradients are
// bfloat16 values in the first half of their memory.

// packed returns the bfloat16 tensor with the same number of elements at the start of t's memory.
func packed(t device.Tensor) device.Tensor { return device.At(device.BFloat16, t.Base(), t.Len()) }

// beside reports whether gradients are compressed in device memory.
func (s *Sharder) beside() bool { return s.bf16 && !s.memory.Host() }

// pack rounds a bucket's gradients to bfloat16.
func (s *Sharder) pack(grad device.Tensor) {
	half := s.halves(grad.Len())
	s.memory.Cast(half, grad)
	s.memory.Copy(packed(grad), half)
}

// unpack widens this rank's shard of a bucket's reduced gradients. The reduction must have ended.
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

// reduceAll all-reduces gradients. With bf16 it rounds them, sums them in bfloat16, rounding each
// sum, and widens the result, like PyTorch's bf16_compress_hook. The gradients are already divided
// by the number of ranks, so sums stay as small as single gradients. Every rank widens the same
// bits, so replicas stay equal.
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

// reduceMine reduce-scatters gradients: part receives this rank's shard of the sums. The rest of
// grads is undefined afterwards.
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

// bits returns a bfloat16 tensor as a slice of package element's type.
func bits(t device.Tensor) []element.BF16 {
	return unsafe.Slice((*element.BF16)(t.Base()), t.Len())
}
