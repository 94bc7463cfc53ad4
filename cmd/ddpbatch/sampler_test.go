package main

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// TestSamplerDeals checks that deal assigns the same samples to each rank as the trainer's
// sampler.
func TestSamplerDeals(t *testing.T) {
	for _, length := range []int{1, 2, 7, 24, 25} {
		for _, replicas := range []int{1, 2, 3, 8, 24, 60} {
			for flags := range 4 {
				c := samplerCmd{Length: length, Replicas: replicas, Shuffle: flags&1 != 0, DropLast: flags&2 != 0, Seed: 5, Epoch: 3}
				samplesOf := c.assignSamples()
				for rank := range replicas {
					s := data.Sampler{N: length, Replicas: replicas, Rank: rank, Shuffle: c.Shuffle, DropLast: c.DropLast, Seed: c.Seed}
					if got, want := samplesOf(rank), s.Epoch(c.Epoch); !slices.Equal(got, want) {
						t.Errorf("%+v: rank %d takes %v, want %v", c, rank, got, want)
					}
				}
			}
		}
	}
}
