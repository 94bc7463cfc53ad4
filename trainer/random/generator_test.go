package random

import (
	"slices"
	"testing"
)

// TestUint32KnownAnswer checks the 10,000th value for seed 5489, which the C++ standard
// ([rand.predef]) specifies for mt19937.
func TestUint32KnownAnswer(t *testing.T) {
	g := New(5489)
	for range 9999 {
		g.Uint32()
	}
	if got := g.Uint32(); got != 4123659995 {
		t.Errorf("draw 10000 = %d, want 4123659995", got)
	}
}

// TestSeedUsesLow32Bits checks that only the low 32 bits of a seed count, as in PyTorch.
func TestSeedUsesLow32Bits(t *testing.T) {
	if a, b := New(7).Uint32(), New(7+1<<32).Uint32(); a != b {
		t.Errorf("seeds 7 and 2^32+7 draw %d and %d, want equal", a, b)
	}
}

// TestPermLimits checks permutations without elements, and that sizes out of range panic.
func TestPermLimits(t *testing.T) {
	if got := New(0).Perm(0); len(got) != 0 {
		t.Errorf("Perm(0) = %v, want none", got)
	}
	for _, n := range []int{-1, MaxPerm + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Perm(%d) did not panic", n)
				}
			}()
			New(0).Perm(n)
		}()
	}
}

// TestPermIsPermutation checks that a permutation has each index once.
func TestPermIsPermutation(t *testing.T) {
	p := New(3).Perm(1000)
	slices.Sort(p)
	for i, v := range p {
		if i != v {
			t.Fatalf("element %d missing", i)
		}
	}
}

// TestUniformPanicsOnReversedBounds checks that Uniform panics if the lower bound is above the
// upper one.
func TestUniformPanicsOnReversedBounds(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Uniform(1, 0) did not panic")
		}
	}()
	New(0).Uniform(1, 0, make([]float32, 1))
}

func BenchmarkPerm60000(b *testing.B) {
	for range b.N {
		New(0).Perm(60000)
	}
}
