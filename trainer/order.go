package trainer

import "github.com/ddpbatch/ddpbatch/trainer/data"

// order is what this rank takes of the rest of an epoch, in batches.
type order struct {
	batches    [][]int
	accumulate int // batches of a step
}

// batches is the order from a position on.
func (r *run) batches(at position) order {
	t := r.train
	s := data.Sampler{N: r.data.Len(), Replicas: r.Comm.Size(), Rank: r.Comm.Rank(), Shuffle: *t.Data.Shuffle, DropLast: t.Data.DropLast, Seed: int64(t.Seed)}
	b := data.BatchSampler{Sampler: s, Batch: int(t.Batch), DropLast: t.Data.DropLast}
	rest := b.Rest(data.State{Seed: int64(t.Seed), Epoch: int(at.Epoch), Consumed: int(at.Consumed)})
	return order{rest, max(1, int(t.Accumulate))}
}

// steps divides the batches into those of each step; the last may have fewer.
func (o order) steps() [][][]int {
	var out [][][]int
	for left := o.batches; len(left) > 0; {
		n := min(o.accumulate, len(left))
		out = append(out, left[:n])
		left = left[n:]
	}
	return out
}
