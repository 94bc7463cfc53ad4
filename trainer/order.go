package trainer

import (
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// stepBatches is this rank's part of an optimizer step. With uneven = "join", a rank with fewer
// micro-batches than others takes part in collectives with padding batches, which do not count, as
// in PyTorch's Join.
type stepBatches struct {
	batches [][]int
	count   int // batches that count; the others are padding
	samples int // samples of all ranks that count
}

// paddingBatch is a padding batch.
var paddingBatch = []int{0}

// steps returns the remaining steps of an epoch. Every rank has the same number of steps.
func (r *run) steps(at position) []stepBatches {
	t, world := r.train, r.Comm.Size()
	join, accumulate := t.Data.Uneven == jobs.UnevenJoin, max(1, t.Accumulate)
	s := data.Sampler{N: r.data.Len(), Replicas: world, Rank: r.Comm.Rank(), Shuffle: *t.Data.Shuffle, Join: join,
		DropLast: t.Data.DropLast || t.Data.Uneven == jobs.UnevenDrop, Seed: int64(t.Seed)}
	b := data.BatchSampler{Sampler: s, Batch: t.Batch, DropLast: t.Data.DropLast}
	mine := b.Rest(data.State{Seed: int64(t.Seed), Epoch: int(at.Epoch), Consumed: int(at.Consumed)})
	left := s.N - int(at.Consumed)
	var out []stepBatches
	for len(mine) > 0 || join && left > 0 {
		n := min(accumulate, len(mine))
		now := stepBatches{batches: mine[:n:n], count: n}
		mine = mine[n:]
		if join {
			now.samples = min(left, accumulate*b.Batch*world)
			left -= now.samples
			now.pad(r.batchesPerRank(now.samples))
		} else {
			for _, batch := range now.batches {
				now.samples += len(batch) * world
			}
		}
		out = append(out, now)
	}
	return out
}

// countSteps returns the number of steps that steps returns, without computing the order of samples.
func (r *run) countSteps(at position) int {
	t, world := r.train, r.Comm.Size()
	accumulate, left := max(1, t.Accumulate), max(0, r.data.Len()-int(at.Consumed))
	if t.Data.Uneven == jobs.UnevenJoin {
		return roundedUp(left, accumulate*t.Batch*world)
	}
	batches := left / world
	if !t.Data.DropLast && t.Data.Uneven != jobs.UnevenDrop {
		batches = roundedUp(left, world)
	}
	if t.Data.DropLast {
		batches /= t.Batch
	} else {
		batches = roundedUp(batches, t.Batch)
	}
	return roundedUp(batches, accumulate)
}

// roundedUp returns a/b, rounded up.
func roundedUp(a, b int) int { return (a + b - 1) / b }

// batchesPerRank returns the minimum number of micro-batches per rank in a step with this number of
// samples. One is enough to have gradients to reduce. If gradients are reduced after each
// micro-batch, all ranks need as many as rank 0, which has the most samples.
func (r *run) batchesPerRank(samples int) int {
	if !r.sharder.ReducesEachBatch() {
		return 1
	}
	return roundedUp(perRank(samples, r.Comm.Size()), r.train.Batch)
}

// pad appends padding batches, up to the given number of batches.
func (s *stepBatches) pad(least int) {
	for len(s.batches) < least {
		s.batches = append(s.batches, paddingBatch)
	}
}

// batchesOf returns the batches of all steps, in order.
func batchesOf(steps []stepBatches) [][]int {
	var out [][]int
	for _, s := range steps {
		out = append(out, s.batches...)
	}
	return out
}
