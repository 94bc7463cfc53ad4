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

// Every product must be the plain sum from first to last, whatever the shape and
// wherever the element lies in a tile.
func TestProductsAreSequentialSums(t *testing.T) {
	sizes := []int{1, 2, 3, 4, 5, 6, 7, 13, 32}
	for _, rows := range sizes {
		for _, cols := range sizes {
			for _, k := range sizes {
				a, b, bias := fill(rows*k, 1), fill(cols*k, 2), fill(cols, 3)
				bT := make([]float32, cols*k)
				transpose(bT, b, cols, k)
				want, wantBias := make([]float32, rows*cols), make([]float32, rows*cols)
				for i := range rows {
					for j := range cols {
						var sum float32
						for n := range k {
							sum += float32(a[i*k+n] * b[j*k+n])
						}
						want[i*cols+j] = sum
						wantBias[i*cols+j] = sum + bias[j]
					}
				}
				got := make([]float32, rows*cols)
				multiplyNT(got, a, b, bias, rows, cols, k)
				sameBits(t, "multiplyNT", got, wantBias)
				clear(got)
				multiplyNN(got, a, bT, make([]float32, 2*k), rows, cols, k)
				sameBits(t, "multiplyNN", got, want)
			}
		}
	}
}

func TestTranspose(t *testing.T) {
	got := make([]float32, 6)
	transpose(got, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	sameBits(t, "transpose", got, []float32{1, 4, 2, 5, 3, 6})
}
