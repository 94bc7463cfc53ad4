package device

import (
	"math"
	"testing"
)

// TestPower compares Power with math.Pow.
func TestPower(t *testing.T) {
	for _, base := range []float64{0, 0.5, 0.9, 0.999, 1} {
		for _, n := range []int64{0, 1, 2, 7, 50, 1000, 1 << 24} {
			got, want := Power(base, n), math.Pow(base, float64(n))
			if !(math.Abs(got-want) <= 1e-12*want+1e-300) {
				t.Errorf("Power(%v, %d) is %v, want %v", base, n, got, want)
			}
		}
	}
}
