package data

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Sampler divides the samples of each epoch among ranks, as PyTorch's
// torch.utils.data.DistributedSampler. Its value is all there is: two samplers
// with equal fields give equal indices.
type Sampler struct {
	N        int   // samples in the dataset, at most random.MaxPerm
	Replicas int   // ranks that share an epoch (num_replicas)
	Rank     int   // this rank, 0 to Replicas-1
	Shuffle  bool  // permute anew each epoch, by a generator seeded Seed+epoch
	Join     bool  // take each sample once: some ranks get one fewer; not beside DropLast
	DropLast bool  // leave out the last samples that do not go around, instead of repeating some
	Seed     int64 // the same on all ranks
}

// Epoch returns the indices that this rank takes in the given epoch, in order:
// DistributedSampler after set_epoch(epoch). Every rank gets equally many. Where
// the samples do not go around, samples from the front of the epoch's order are
// taken again, or with DropLast those at its end are left out. With Join the first
// ranks get one more instead, as for PyTorch's Join of uneven inputs.
func (s Sampler) Epoch(epoch int) []int { return s.Resume(epoch, 0) }

// Resume returns the indices that this rank takes of the rest of an epoch, of
// which all ranks together have taken the first consumed samples (repeated ones
// count). With the number of ranks that took those it is the tail of [Sampler.Epoch];
// with any other number the ranks together take each remaining sample once, apart
// from the samples that are repeated or left out to give every rank equally many.
// Consumed may reach or exceed N: then nothing is left.
func (s Sampler) Resume(epoch, consumed int) []int {
	if s.N < 0 || s.Replicas < 1 || s.Rank < 0 || s.Rank >= s.Replicas || consumed < 0 || s.Join && s.DropLast {
		panic(fmt.Sprintf("data: impossible sampler %+v after %d samples", s, consumed))
	}
	order := s.order(epoch)
	rest := order[min(consumed, len(order)):]
	mine := make([]int, s.perRank(len(rest)))
	for i := range mine {
		at := s.Rank + i*s.Replicas
		if at < len(rest) {
			mine[i] = rest[at]
		} else {
			mine[i] = order[(at-len(rest))%len(order)]
		}
	}
	return mine
}

// perRank returns how many samples this rank takes of so many.
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
