package nn

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// fill returns n numbers between -1 and 1.
func fill(n int, seed uint64) []float32 {
	x := make([]float32, n)
	random.New(seed).Uniform(-1, 1, x)
	return x
}

// sameBits fails unless got and want are the same numbers.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
