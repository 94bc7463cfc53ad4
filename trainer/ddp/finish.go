package ddp

import (
	"context"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Finish waits until every bucket is added up, and computes the norm. After an error
// values and gradients are worthless and the communicator is broken.
func (s *Sharder) Finish(ctx context.Context) error {
	if err := s.stopReady(); err != nil {
		return err
	}
	if s.beside() {
		for i := range s.buckets {
			s.unpack(i)
		}
	}
	return s.total(ctx)
}

// FinishLater is Finish of a rank alone, whose device is still computing: the norm is for
// the verdict to find, which has a part for each of Parts.
func (s *Sharder) FinishLater(v device.Verdict) error {
	if !s.alone() {
		panic("ddp: a verdict on the gradients of several ranks")
	}
	if err := s.stopReady(); err != nil {
		return err
	}
	for i, p := range s.parts {
		v.Squares(i, p.Grad)
	}
	return nil
}

// stopReady is Stop, when every gradient must be ready.
func (s *Sharder) stopReady() error {
	if err := s.Stop(); err != nil {
		return err
	}
	if s.next != len(s.buckets) {
		return fmt.Errorf("%d of %d buckets did not become ready", len(s.buckets)-s.next, len(s.buckets))
	}
	return nil
}

// total adds up the squares of gradients, bucket by bucket for each rank's chunks and
// then over ranks, whoever has them; and gives every rank the extra scalars.
func (s *Sharder) total(ctx context.Context) error {
	clear(s.totals)
	size, last := s.comm.Size(), len(s.buckets)-1
	squares, extra := s.totals[:size], s.totals[size:]
	for i, v := range s.sentExtra() {
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
	var shared []float64 // what ranks have parts of
	switch {
	case s.Strategy != DDP:
		shared = s.totals // but for extra with bf16, sums with zeros: nothing is rounded
	case s.bf16:
		shared = extra
	}
	if shared != nil {
		if err := s.queue.exposed(func() error { return s.comm.AllReduceFloat64(ctx, shared) }); err != nil {
			return fmt.Errorf("add up the norm of gradients and the loss: %w", err)
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
