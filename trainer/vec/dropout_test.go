package vec_test

import (
	"math"
	"math/bits"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// dropoutMask returns which of n elements, starting at first, are kept, as 0 and 1.
func dropoutMask(n int, threshold uint32, key, first uint64) []float32 {
	y, x := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = 0.5
	}
	vec.New().Dropout(y, x, 2, threshold, key, first)
	return y
}

// TestDropoutFraction checks that the fraction of kept elements matches the threshold, over the
// whole range of indices and for all keys.
func TestDropoutFraction(t *testing.T) {
	const n = 1 << 16
	for _, p := range []float64{0, 0.1, 0.5, 0.9} {
		for _, key := range []uint64{0, 1, 2, 1 << 32, 1<<63 + 5, math.MaxUint64} {
			for _, first := range []uint64{0, 1 << 20, 1<<32 - n/2, 1 << 50} {
				count := 0.0
				for _, v := range dropoutMask(n, uint32(p*(1<<32)), key, first) {
					if v != 0 && v != 1 {
						t.Fatalf("0.5*2 or nothing is %v", v)
					}
					count += float64(v)
				}
				if want, deviation := (1-p)*n, math.Sqrt(p*(1-p)*n); math.Abs(count-want) > 5*deviation {
					t.Errorf("p %v, key %d, from %d: %v of %d are kept, want %v ± %v", p, key, first, count, n, want, deviation)
				}
			}
		}
	}
}

// TestDropoutIndependence checks that the kept elements do not depend on adjacent elements, on
// other keys, or on distant indices: such pairs are equal for half of the elements.
func TestDropoutIndependence(t *testing.T) {
	const n, half = 1 << 16, 1 << 31
	agree := func(what string, a, b []float32) {
		same := 0.0
		for i := range a {
			if a[i] == b[i] {
				same++
			}
		}
		if size := float64(len(a)); math.Abs(same-size/2) > 5*math.Sqrt(size)/2 {
			t.Errorf("%s: %v of %v agree", what, same, size)
		}
	}
	for _, key := range []uint64{0, 1, 12345, 1 << 40} {
		base := dropoutMask(n, half, key, 0)
		for _, distance := range []int{1, 2, 3, 16, 64, 768, 1024, 4096} {
			agree("neighbours", base[distance:], base[:n-distance])
		}
		for bit := range 64 {
			agree("another key", base, dropoutMask(n, half, key^1<<bit, 0))
			if bit > 16 {
				agree("far numbers", base, dropoutMask(n, half, key, 1<<bit))
			}
		}
	}
}

// TestDropoutAvalanche checks that every bit of the index and of the key changes the decision of
// every threshold equally often. It finds the random value by bisection.
func TestDropoutAvalanche(t *testing.T) {
	number := func(key, at uint64) uint32 {
		found := uint32(0)
		for bit := 31; bit >= 0; bit-- {
			if try := found | 1<<bit; dropoutMask(1, try, key, at)[0] == 1 {
				found = try
			}
		}
		return found
	}
	const n = 60
	for bit := range 64 {
		changed := [2]int{}
		for i := range uint64(n) {
			base := number(i, i*i*i)
			changed[0] += bits.OnesCount32(base ^ number(i^1<<bit, i*i*i))
			changed[1] += bits.OnesCount32(base ^ number(i, (i*i*i)^1<<bit))
		}
		for i, what := range []string{"key", "number"} {
			if want, deviation := 16.0*n, math.Sqrt(32*n)/2; math.Abs(float64(changed[i])-want) > 5*deviation {
				t.Errorf("bit %d of the %s changes %d bits of %d", bit, what, changed[i], 32*n)
			}
		}
	}
}

// TestDropoutInPieces checks that one call and many calls keep the same elements.
func TestDropoutInPieces(t *testing.T) {
	for _, first := range []uint64{3, 1<<32 - 100, math.MaxUint64 - 50} {
		whole := dropoutMask(300, 1<<31, 9, first)
		for i := range whole {
			if got := dropoutMask(1, 1<<31, 9, first+uint64(i))[0]; got != whole[i] {
				t.Fatalf("element %d from %d on is %v alone and %v among others", i, first, got, whole[i])
			}
		}
	}
}
