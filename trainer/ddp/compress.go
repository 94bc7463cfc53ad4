package ddp

import (
	"context"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// bf16Scratch returns a bfloat16 scratch tensor of n gradients. Operations use it in turn.
func (s *Sharder) bf16Scratch(n int) device.Tensor {
	return device.At(device.BFloat16, s.scratch.Base(), n)
}

// The device rounds and widens gradients in device memory, in order with its computation: it rounds
// before a reduction starts and widens after the reduction has ended. In between, the gradients are
// bfloat16 values in the first half of their memory.

// bf16View returns the bfloat16 tensor with the same number of elements at the start of t's memory.
func bf16View(t device.Tensor) device.Tensor { return device.At(device.BFloat16, t.Base(), t.Len()) }

// compressesOnDevice reports whether gradients are compressed in device memory.
func (s *Sharder) compressesOnDevice() bool { return s.bf16 && !s.memory.Host() }

// compress rounds a bucket's gradients to bfloat16.
func (s *Sharder) compress(grad device.Tensor) {
	half := s.bf16Scratch(grad.Len())
	s.memory.Cast(half, grad)
	s.memory.Copy(bf16View(grad), half)
}

// decompress widens this rank's part of a bucket's reduced gradients: with DDP all of them, otherwise
// its shard. The reduction must have ended.
func (s *Sharder) decompress(i int) {
	b := &s.buckets[i]
	from := bf16View(b.gradPart)
	if s.Strategy != DDP && !s.ReducesEachBatch() {
		from = s.shard(bf16View(b.grad))
	}
	half := s.bf16Scratch(b.gradPart.Len())
	s.memory.Copy(half, from)
	s.memory.Cast(b.gradPart, half)
}

// allReduce all-reduces gradients. With bf16 it rounds them, sums them in bfloat16, rounding each
// sum, and widens the result, like PyTorch's bf16_compress_hook. The gradients are already divided
// by the number of ranks, so sums stay as small as single gradients. Every rank widens the same
// bits, so replicas stay equal.
func (s *Sharder) allReduce(ctx context.Context, grads device.Tensor) (Work, error) {
	switch {
	case !s.bf16:
		return s.comm.AllReduce(ctx, grads)
	case s.compressesOnDevice():
		return s.comm.AllReduce(ctx, bf16View(grads))
	}
	half := s.bf16Scratch(grads.Len())
	element.Round(bf16Slice(half), grads.Floats())
	if _, err := s.comm.AllReduce(ctx, half); err != nil {
		return nil, err
	}
	element.Widen(grads.Floats(), bf16Slice(half))
	return nil, nil
}

// reduceScatter reduce-scatters gradients: part receives this rank's shard of the sums. The rest of
// grads is undefined afterwards.
func (s *Sharder) reduceScatter(ctx context.Context, part, grads device.Tensor) (Work, error) {
	if !s.bf16 {
		return s.comm.ReduceScatter(ctx, part, grads)
	}
	half := s.bf16Scratch(grads.Len())
	ownShard := s.shard(half)
	element.Round(bf16Slice(half), grads.Floats())
	if _, err := s.comm.ReduceScatter(ctx, ownShard, half); err != nil {
		return nil, err
	}
	element.Widen(part.Floats(), bf16Slice(ownShard))
	return nil, nil
}

// bf16Slice returns a bfloat16 tensor as a slice of package element's type.
func bf16Slice(t device.Tensor) []element.BF16 {
	return unsafe.Slice((*element.BF16)(t.Base()), t.Len())
}
