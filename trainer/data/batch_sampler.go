package data

import "fmt"

// BatchSampler divides a rank's samples into batches, like PyTorch's
// torch.utils.data.BatchSampler(sampler, batch_size, drop_last).
type BatchSampler struct {
	Sampler Sampler
	Batch   int // samples per batch and rank, at least 1
	// DropLast drops a last batch that is not full. The sampler's DropLast is for samples that do
	// not divide evenly among the ranks.
	DropLast bool
}

// State is the position of a run in its samples. It is valid for any number of ranks.
type State struct {
	Seed     int64
	Epoch    int
	Consumed int // samples of the epoch that all ranks have consumed
}

// Rest returns the remaining batches of this rank in the epoch of at. At the beginning of the epoch
// this is the whole epoch, as in PyTorch.
//
// Whatever numbers of ranks process an epoch one after the other, each sample is used once, with
// these exceptions, where n is the last number of ranks:
//
//   - Without any DropLast, fewer than n samples are repeated, so that ranks have equal numbers of
//     samples.
//   - With the sampler's DropLast, fewer than n samples are dropped instead.
//   - With DropLast of batches, each rank also drops less than one batch.
//   - With the sampler's Join there are no exceptions, and a rank may have one batch fewer than
//     rank 0, or a shorter last one.
func (s BatchSampler) Rest(at State) [][]int {
	if s.Batch < 1 {
		panic(fmt.Sprintf("data: batches of %d samples", s.Batch))
	}
	if at.Seed != s.Sampler.Seed {
		panic(fmt.Sprintf("data: the state is of seed %d, the sampler of %d", at.Seed, s.Sampler.Seed))
	}
	indices := s.Sampler.Resume(at.Epoch, at.Consumed)
	batches := make([][]int, 0, (len(indices)+s.Batch-1)/s.Batch)
	for len(indices) > 0 {
		n := min(s.Batch, len(indices))
		if n == s.Batch || !s.DropLast {
			batches = append(batches, indices[:n:n])
		}
		indices = indices[n:]
	}
	return batches
}
