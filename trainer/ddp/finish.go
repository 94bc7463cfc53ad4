package ddp

import (
	"context"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Finish waits until every bucket is reduced, and computes the norm. After an error, values and
// gradients are undefined and the communicator cannot be used.
func (s *Sharder) Finish(ctx context.Context) error {
	if err := s.stopAllReady(); err != nil {
		return err
	}
	if s.compressesOnDevice() {
		for i := range s.buckets {
			s.decompress(i)
		}
	}
	return s.computeNorm(ctx)
}

// FinishAsync does the work of Finish for a single rank whose device computes asynchronously. It
// adds the squares of each part to v, which computes the norm.
func (s *Sharder) FinishAsync(v device.StepDecision) error {
	if !s.isSingleRank() {
		panic("ddp: FinishAsync with several ranks")
	}
	if err := s.stopAllReady(); err != nil {
		return err
	}
	for i, p := range s.parts {
		v.Squares(i, p.Grad)
	}
	return nil
}

// stopAllReady calls Stop and checks that every gradient was ready.
func (s *Sharder) stopAllReady() error {
	if err := s.Stop(); err != nil {
		return err
	}
	if s.next != len(s.buckets) {
		return fmt.Errorf("%d of %d buckets did not become ready", len(s.buckets)-s.next, len(s.buckets))
	}
	return nil
}

// computeNorm computes the norm: it sums the squares of gradients, bucket by bucket for each rank's
// shards and then over ranks. This order does not depend on the strategy. It also gives every rank
// the extra scalars.
func (s *Sharder) computeNorm(ctx context.Context) error {
	clear(s.totals)
	size, last := s.comm.Size(), len(s.buckets)-1
	squares, extra := s.totals[:size], s.totals[size:]
	for i, v := range s.takeExtra() {
		extra[i] = float64(v)
	}
	for i := 0; i <= last; i++ {
		grad := s.buckets[i].gradPart
		if s.Strategy != DDP {
			squares[s.comm.Rank()] += s.memory.SumSquares(grad)
			continue
		}
		chunk := grad.Len() / size
		for r := range size {
			squares[r] += s.memory.SumSquares(grad.Slice(r*chunk, (r+1)*chunk))
		}
	}
	var shared []float64 // values that differ between ranks
	switch {
	case s.Strategy != DDP:
		shared = s.totals // except extra with bf16, sums with zeros: no rounding
	case s.bf16:
		shared = extra
	}
	if shared != nil {
		if err := s.queue.exposed(func() error { return s.comm.AllReduceFloat64(ctx, shared) }); err != nil {
			return fmt.Errorf("all-reduce the gradient norm and the loss: %w", err)
		}
	}
	sum := 0.0
	for _, v := range squares {
		sum += v
	}
	s.norm = math.Sqrt(sum)
	for i, v := range extra {
		s.extra[i] = float32(v)
	}
	return nil
}
