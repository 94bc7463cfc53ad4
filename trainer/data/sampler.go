package data

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Sampler divides the samples of each epoch among ranks, like PyTorch's
// torch.utils.data.DistributedSampler. It has no state: two samplers with equal fields give equal
// indices.
type Sampler struct {
	N        int   // samples in the dataset, at most random.MaxPerm
	Replicas int   // ranks that share an epoch (num_replicas)
	Rank     int   // this rank, 0 to Replicas-1
	Shuffle  bool  // new permutation in each epoch, from a generator seeded with Seed+epoch
	Join     bool  // use each sample once: some ranks get one sample fewer; not together with DropLast
	DropLast bool  // drop the remainder instead of padding it
	Seed     int64 // equal on all ranks
}

// Epoch returns the indices of this rank in the given epoch, in order, like DistributedSampler
// after set_epoch(epoch). All ranks get the same number. If the samples do not divide evenly among
// the ranks, samples from the start of the epoch's order are repeated, or with DropLast samples at
// its end are dropped. With Join, the first ranks get one more sample instead, as for PyTorch's
// Join of uneven inputs.
func (s Sampler) Epoch(epoch int) []int { return s.Resume(epoch, 0) }

// Resume returns the indices of this rank in the rest of an epoch, of which all ranks together have
// used the first consumed samples (including repeated ones). If the number of ranks is unchanged,
// this is the tail of [Sampler.Epoch]. With a different number, the ranks together use each
// remaining sample once, except samples that are repeated or dropped to give every rank the same
// number. Consumed may reach or exceed N: then nothing is left.
func (s Sampler) Resume(epoch, consumed int) []int {
	return s.indices(s.order(epoch), consumed)
}

// Split returns a function that returns the indices of each rank in an epoch, like
// [Sampler.Epoch]. It computes the order of the epoch once for all ranks. It ignores s.Rank.
func (s Sampler) Split(epoch int) func(rank int) []int {
	order := s.order(epoch)
	return func(rank int) []int {
		one := s
		one.Rank = rank
		return one.indices(order, 0)
	}
}

// indices returns the indices of this rank in the part of order after the first consumed samples.
func (s Sampler) indices(order []int, consumed int) []int {
	if s.N < 0 || s.Replicas < 1 || s.Rank < 0 || s.Rank >= s.Replicas || consumed < 0 || s.Join && s.DropLast {
		panic(fmt.Sprintf("data: impossible sampler %+v after %d samples", s, consumed))
	}
	rest := order[min(consumed, len(order)):]
	indices := make([]int, s.perRank(len(rest)))
	for i := range indices {
		at := s.Rank + i*s.Replicas
		if at < len(rest) {
			indices[i] = rest[at]
		} else {
			indices[i] = order[(at-len(rest))%len(order)]
		}
	}
	return indices
}

// perRank returns this rank's number of samples.
func (s Sampler) perRank(samples int) int {
	switch {
	case s.DropLast:
		return samples / s.Replicas
	case s.Join:
		return max(0, samples+s.Replicas-1-s.Rank) / s.Replicas
	}
	return (samples + s.Replicas - 1) / s.Replicas
}

// order returns all samples in the order of an epoch.
func (s Sampler) order(epoch int) []int {
	if s.Shuffle {
		return random.New(uint64(s.Seed + int64(epoch))).Perm(s.N)
	}
	order := make([]int, s.N)
	for i := range order {
		order[i] = i
	}
	return order
}
