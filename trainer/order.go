package trainer

import (
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// step is what this rank does in one step of all ranks. A rank that has fewer batches
// than others, as uneven = "join" lets it, takes part in what they do together with
// batches that count for nothing, as in PyTorch's Join.
type step struct {
	batches [][]int
	count   int // of batches: those after them count for nothing
	samples int // of all ranks that count
}

// nothing is a batch for a rank that has none left.
var nothing = []int{0}

// steps are those of the rest of an epoch, the same number on every rank.
func (r *run) steps(at position) []step {
	t, world := r.train, r.Comm.Size()
	join, accumulate := t.Data.Uneven == jobs.UnevenJoin, max(1, int(t.Accumulate))
	s := data.Sampler{N: r.data.Len(), Replicas: world, Rank: r.Comm.Rank(), Shuffle: *t.Data.Shuffle, Join: join,
		DropLast: t.Data.DropLast || t.Data.Uneven == jobs.UnevenDrop, Seed: int64(t.Seed)}
	b := data.BatchSampler{Sampler: s, Batch: int(t.Batch), DropLast: t.Data.DropLast}
	mine := b.Rest(data.State{Seed: int64(t.Seed), Epoch: int(at.Epoch), Consumed: int(at.Consumed)})
	left := s.N - int(at.Consumed)
	var out []step
	for len(mine) > 0 || join && left > 0 {
		n := min(accumulate, len(mine))
		now := step{batches: mine[:n:n], count: n}
		mine = mine[n:]
		if join {
			now.samples = min(left, accumulate*b.Batch*world)
			left -= now.samples
			now.fill(r.together(now.samples))
		} else {
			for _, batch := range now.batches {
				now.samples += len(batch) * world
			}
		}
		out = append(out, now)
	}
	return out
}

// together is the batches that each rank needs for a step of so many samples: one to
// have gradients at all, and where these are added up after each batch as many as rank
// 0, which has most.
func (r *run) together(samples int) int {
	if !r.sharder.EachBatch() {
		return 1
	}
	batch := int(r.train.Batch)
	return (perRank(samples, r.Comm.Size()) + batch - 1) / batch
}

// fill adds batches that count for nothing.
func (s *step) fill(least int) {
	for len(s.batches) < least {
		s.batches = append(s.batches, nothing)
	}
}

// batchesOf are those of all steps, one after the other.
func batchesOf(steps []step) [][]int {
	var out [][]int
	for _, s := range steps {
		out = append(out, s.batches...)
	}
	return out
}
