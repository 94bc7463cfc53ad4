package ddp

import (
	"context"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// halves is room for n gradients in bfloat16. Operations use it in turn.
func (s *Sharder) halves(n int) []element.BF16 {
	return element.View[element.BF16](element.Bytes(s.half.Floats()))[:n]
}

// reduceAll replaces gradients by their sums over all ranks. With bf16 they are rounded,
// added up, rounding each sum, and widened, as by PyTorch's bf16_compress_hook; that they
// come divided by the number of ranks keeps sums as small as they are. Every rank widens
// the same bits, so replicas stay equal.
func (s *Sharder) reduceAll(ctx context.Context, grads []float32) error {
	if !s.bf16 {
		return s.comm.AllReduce(ctx, grads)
	}
	half := s.halves(len(grads))
	element.Round(half, grads)
	if err := s.comm.AllReduceBF16(ctx, half); err != nil {
		return err
	}
	element.Widen(grads, half)
	return nil
}

// reduceMine replaces this rank's part of gradients by its sums over all ranks. The rest
// holds nothing of meaning then.
func (s *Sharder) reduceMine(ctx context.Context, grads []float32) error {
	if !s.bf16 {
		return s.comm.ReduceScatter(ctx, grads)
	}
	half := s.halves(len(grads))
	element.Round(half, grads)
	if err := s.comm.ReduceScatterBF16(ctx, half); err != nil {
		return err
	}
	part := len(grads) / s.comm.Size()
	from, to := s.comm.Rank()*part, (s.comm.Rank()+1)*part
	element.Widen(grads[from:to], half[from:to])
	return nil
}
