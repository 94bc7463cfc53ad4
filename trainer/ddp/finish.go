package ddp

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Finish waits until every bucket is reduced, and computes the records of all ranks. With an
// asynchronous device it only enqueues this computation, after operations on a stream, which
// [Sharder.TakeWork] returns. After an error, values and gradients are undefined and the communicator
// cannot be used.
func (s *Sharder) Finish(ctx context.Context) error {
	defer s.queue.endStep()
	if err := s.stopAllReady(); err != nil {
		return err
	}
	if s.compressesOnDevice() {
		for i := range s.buckets {
			s.decompress(i)
		}
	}
	return s.computeRecords(ctx)
}

// stopAllReady ends the queue's operations and checks that every gradient was ready.
func (s *Sharder) stopAllReady() error {
	if err := s.queue.end(); err != nil {
		return err
	}
	if s.next != len(s.buckets) {
		return fmt.Errorf("%d of %d buckets did not become ready", len(s.buckets)-s.next, len(s.buckets))
	}
	return nil
}

// computeRecords sums the squares of gradients, bucket by bucket for each rank's shards. This order
// does not depend on the strategy. A rank that has all gradients and the sums of all scalars
// computes the records of all ranks, with the scalars in the first one. Otherwise it computes its
// own record, and the ranks exchange them.
func (s *Sharder) computeRecords(ctx context.Context) error {
	ranks := s.comm.Size()
	width := s.records.Len() / ranks
	own := s.records.Slice(s.comm.Rank()*width, (s.comm.Rank()+1)*width)
	exchanged := ranks > 1 && (s.Strategy != DDP || s.bf16)
	records, chunks := s.records, ranks
	if exchanged {
		records, chunks = own, 1
	}
	s.takeExtra(records.Slice(1, width))
	for i := range s.buckets {
		grad := s.buckets[i].gradPart
		if exchanged && s.Strategy == DDP {
			grad = s.shard(grad)
		}
		s.memory.ChunkSquares(records, width, grad, chunks, i > 0)
	}
	if !exchanged {
		return nil
	}
	if err := s.queue.exposed(func() (Work, error) { return s.comm.AllGather(ctx, float32View(s.records), float32View(own)) }); err != nil {
		return s.describe(exchange, 0, err)
	}
	return nil
}

// float32View returns a Float64 tensor's memory as a Float32 tensor, for collectives that copy.
func float32View(t device.Tensor) device.Tensor {
	return device.At(device.Float32, t.Base(), 2*t.Len())
}
