package data

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// epochInParts runs an epoch in parts, each with a different number of ranks for some batches, the
// last part to the end. It returns how often each sample was used, and the sampler of the last
// part.
func epochInParts(rng *rand.Rand, s BatchSampler, epoch int) ([]int, BatchSampler) {
	count := make([]int, s.Sampler.N)
	at := State{Seed: s.Sampler.Seed, Epoch: epoch}
	for parts := rng.IntN(5); ; parts-- {
		s.Sampler.Replicas = 1 + rng.IntN(9)
		s.Batch = 1 + rng.IntN(6)
		all := make([][][]int, s.Sampler.Replicas)
		for rank := range all {
			s.Sampler.Rank = rank
			all[rank] = s.Rest(at)
		}
		steps := len(all[0])
		if parts > 0 {
			steps = rng.IntN(steps + 1)
		}
		for step := range steps {
			taken := 0
			for _, batches := range all {
				if step == len(batches) && s.Sampler.Join {
					continue // this rank has no batches left
				}
				for _, i := range batches[step] {
					count[i]++
				}
				taken += len(batches[step])
			}
			at.Consumed += taken
		}
		if parts <= 0 || at.Consumed >= s.Sampler.N {
			return count, s
		}
	}
}

// TestEachSampleOnceAtAnyWorldSizes checks that an epoch uses each sample once, whatever the world
// sizes and batches of its parts are, with the exceptions that Rest documents.
func TestEachSampleOnceAtAnyWorldSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		s := BatchSampler{
			Sampler:  Sampler{N: 1 + rng.IntN(200), Replicas: 1, Shuffle: rng.IntN(2) == 0, DropLast: rng.IntN(2) == 0, Seed: rng.Int64N(1000)},
			Batch:    1,
			DropLast: rng.IntN(2) == 0,
		}
		if s.Sampler.Join = rng.IntN(3) == 0; s.Sampler.Join {
			s.Sampler.DropLast, s.DropLast = false, false
		}
		count, last := epochInParts(rng, s, rng.IntN(3))
		if msg := checkOnce(last, count); msg != "" {
			t.Fatalf("%+v: %s", last, msg)
		}
	}
}

// checkOnce checks how often samples were used in an epoch that s ended.
func checkOnce(s BatchSampler, count []int) string {
	missing, extra := 0, 0
	for _, c := range count {
		missing += max(0, 1-c)
		extra += max(0, c-1)
	}
	mostMissing, mostExtra := 0, s.Sampler.Replicas-1
	if s.Sampler.DropLast {
		mostMissing, mostExtra = s.Sampler.Replicas-1, 0
	}
	if s.Sampler.Join {
		mostExtra = 0
	}
	if s.DropLast {
		mostMissing += (s.Batch - 1) * s.Sampler.Replicas
	}
	if missing > mostMissing || extra > mostExtra {
		return fmt.Sprintf("%d samples missing, %d repeated, want at most %d and %d", missing, extra, mostMissing, mostExtra)
	}
	return ""
}

// TestRestPanicsOnInvalidState checks that Rest panics for a state with a different seed and for a
// sampler without a batch size.
func TestRestPanicsOnInvalidState(t *testing.T) {
	s := BatchSampler{Sampler: Sampler{N: 4, Replicas: 1, Seed: 3}, Batch: 2}
	for name, rest := range map[string]func(){
		"other seed": func() { s.Rest(State{Seed: 4}) },
		"no batch":   func() { BatchSampler{Sampler: s.Sampler}.Rest(State{Seed: 3}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			rest()
		}()
	}
}
