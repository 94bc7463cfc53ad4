package data

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestSamplerEqualsDistributedSampler compares indices with PyTorch's DistributedSampler, for each
// rank.
func TestSamplerEqualsDistributedSampler(t *testing.T) {
	raw, err := os.ReadFile("testdata/sampler_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Sampler []struct {
			N, Replicas, Epoch int
			Seed               int64
			Shuffle            bool
			DropLast           bool `json:"drop_last"`
			NumSamples         int  `json:"num_samples"`
			Ranks              [][]int
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Sampler) != 343 {
		t.Fatalf("%d cases, want 343", len(golden.Sampler))
	}
	for _, c := range golden.Sampler {
		for rank, want := range c.Ranks {
			s := Sampler{N: c.N, Replicas: c.Replicas, Rank: rank, Shuffle: c.Shuffle, DropLast: c.DropLast, Seed: c.Seed}
			got := s.Epoch(c.Epoch)
			if !slices.Equal(got, want) || len(got) != c.NumSamples {
				t.Errorf("%+v.Epoch(%d) = %v, want %v", s, c.Epoch, got, want)
			}
		}
	}
}

// samplers calls check for samplers of many shapes, as rank 0.
func samplers(check func(Sampler)) {
	for _, n := range []int{0, 1, 2, 5, 12, 13, 101} {
		for _, replicas := range []int{1, 2, 3, 4, 7, 16} {
			for _, drop := range []bool{false, true} {
				for _, shuffle := range []bool{false, true} {
					check(Sampler{N: n, Replicas: replicas, Shuffle: shuffle, DropLast: drop, Seed: 4})
				}
			}
		}
	}
}

// together returns the order in which all ranks use samples: the first of every rank, then the
// second of every rank.
func together(t *testing.T, s Sampler, epoch, consumed int) []int {
	t.Helper()
	var all []int
	for s.Rank = 0; s.Rank < s.Replicas; s.Rank++ {
		indices := s.Resume(epoch, consumed)
		if s.Rank == 0 {
			all = make([]int, len(indices)*s.Replicas)
		}
		if len(indices)*s.Replicas != len(all) {
			t.Fatalf("%+v: ranks take unequal numbers of samples", s)
		}
		for i, v := range indices {
			all[i*s.Replicas+s.Rank] = v
		}
	}
	return all
}

// TestResumeWithSameRanksIsTail checks that a resume with the same ranks continues with the
// remaining indices of each rank.
func TestResumeWithSameRanksIsTail(t *testing.T) {
	samplers(func(s Sampler) {
		for s.Rank = 0; s.Rank < s.Replicas; s.Rank++ {
			whole := s.Epoch(3)
			for taken := range len(whole) + 1 {
				got := s.Resume(3, taken*s.Replicas)
				if !slices.Equal(got, whole[taken:]) {
					t.Fatalf("%+v after %d each: %v, want %v", s, taken, got, whole[taken:])
				}
			}
		}
	})
}

// TestResumeWithOtherRanksUsesRestOnce checks that a resume with other ranks uses each remaining
// sample once, except for padding.
func TestResumeWithOtherRanksUsesRestOnce(t *testing.T) {
	samplers(func(before Sampler) {
		for _, replicas := range []int{1, 3, 4, 5} {
			after := before
			after.Replicas = replicas
			whole := together(t, before, 3, 0)
			for consumed := 0; consumed <= len(whole); consumed += before.Replicas {
				rest := together(t, after, 3, consumed)
				if msg := checkRest(after, whole[:consumed], rest); msg != "" {
					t.Fatalf("%+v, then %d ranks after %d samples: %s", before, replicas, consumed, msg)
				}
			}
		}
	})
}

// checkRest checks that taken and rest cover the dataset, apart from padding.
func checkRest(s Sampler, taken, rest []int) string {
	count := make([]int, s.N)
	for _, i := range taken[:min(len(taken), s.N)] {
		count[i]++
	}
	left := s.N - min(len(taken), s.N)
	extra := len(rest) - left
	if extra >= s.Replicas || extra <= -s.Replicas || extra > 0 && s.DropLast || extra < 0 && !s.DropLast {
		return fmt.Sprintf("%d of %d remaining samples", len(rest), left)
	}
	for _, i := range rest[:min(left, len(rest))] {
		count[i]++
	}
	missing := 0
	for i, c := range count {
		if c > 1 {
			return fmt.Sprintf("sample %d taken %d times", i, c)
		}
		missing += 1 - c
	}
	if want := max(0, left-len(rest)); missing != want {
		return fmt.Sprintf("%d samples missing, want %d", missing, want)
	}
	return ""
}

// TestSamplerPanicsOnInvalidValues checks that a sampler panics on invalid counts and ranks.
func TestSamplerPanicsOnInvalidValues(t *testing.T) {
	for _, s := range []Sampler{{N: -1, Replicas: 1}, {N: 5}, {N: 5, Replicas: 2, Rank: 2}, {N: 5, Replicas: 2, Rank: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v did not panic", s)
				}
			}()
			s.Epoch(0)
		}()
	}
}

// TestSplit checks that Split returns the same indices as Epoch.
func TestSplit(t *testing.T) {
	for _, n := range []int{1, 2, 7, 24, 25} {
		for _, replicas := range []int{1, 2, 3, 8, 24, 60} {
			for flags := range 4 {
				s := Sampler{N: n, Replicas: replicas, Shuffle: flags&1 != 0, DropLast: flags&2 != 0, Seed: 5}
				split := s.Split(3)
				for rank := range replicas {
					s.Rank = rank
					if got, want := split(rank), s.Epoch(3); !slices.Equal(got, want) {
						t.Errorf("%+v: got %v, want %v", s, got, want)
					}
				}
			}
		}
	}
}
