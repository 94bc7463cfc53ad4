package cpu

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestLargestOfFour compares the branch-free code for 2x2 squares with the general code, for all
// combinations of special values.
func TestLargestOfFour(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	values := []float32{-inf, -1, float32(math.Copysign(0, -1)), 0, 1e-45, 2, inf, nan, -nan}
	plain := pooling{PoolShape: device.PoolShape{Width: 2, Size: 2}}
	n := len(values)
	for i := range n * n * n * n {
		square := []float32{values[i/n/n/n], values[i/n/n%n], values[i/n%n], values[i%n]}
		_, want := plain.largest(square)
		if got := largestOfFour(square[0], square[1], square[2], square[3]); got != int(want) {
			t.Fatalf("of %v the largest is element %d, want %d", square, got, want)
		}
	}
}
