package data

import "fmt"

// BatchSampler cuts what a rank takes into batches, as PyTorch's
// torch.utils.data.BatchSampler(sampler, batch_size, drop_last).
type BatchSampler struct {
	Sampler Sampler
	Batch   int // samples per batch and rank, at least 1
	// DropLast leaves out a last batch that is not full. The sampler's own DropLast
	// is about samples that do not go around.
	DropLast bool
}

// State is how far a run has come in its samples: what a checkpoint keeps. It
// holds for any number of ranks.
type State struct {
	Seed     int64 `json:"seed"`
	Epoch    int   `json:"epoch"`
	Consumed int   `json:"consumed"` // samples of the epoch that all ranks together have taken
}

// Rest returns the batches that this rank has still to take in the epoch of at;
// at the epoch's beginning it is the whole epoch, as PyTorch's.
//
// Whatever numbers of ranks took part in an epoch one after the other, each sample
// is taken once, but for these: without any DropLast the last ranks to take part
// repeat fewer samples than they are, to get equally many; with the sampler's they
// leave out fewer than they are instead; with DropLast of batches they leave out
// less than a batch each besides. With the sampler's Join there are none of these, and
// a rank may have a batch fewer than the first, or a shorter last one.
func (s BatchSampler) Rest(at State) [][]int {
	if s.Batch < 1 {
		panic(fmt.Sprintf("data: batches of %d samples", s.Batch))
	}
	if at.Seed != s.Sampler.Seed {
		panic(fmt.Sprintf("data: the state is of seed %d, the sampler of %d", at.Seed, s.Sampler.Seed))
	}
	mine := s.Sampler.Resume(at.Epoch, at.Consumed)
	batches := make([][]int, 0, (len(mine)+s.Batch-1)/s.Batch)
	for len(mine) > 0 {
		n := min(s.Batch, len(mine))
		if n == s.Batch || !s.DropLast {
			batches = append(batches, mine[:n:n])
		}
		mine = mine[n:]
	}
	return batches
}
