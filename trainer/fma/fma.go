//go:build !arm64

package fma

import "math"

// Float32 returns a*b+c, rounded to float32 once. The product is exact in float64, so it makes no
// difference whether Go fuses it with the addition. The sum is rounded to float64 first. This can
// change the rounding to float32 only if the rounded sum appears to be halfway between two adjacent
// float32 values. In this case, toOdd computes the result. It also computes results below 2^-126,
// where float32 has fewer bits, so that the check for halfway cases would be different.
//
// The function is too long to be inlined, which makes a loop ten times slower than with separate
// products and sums. This is the price of identical bits on CPUs for which Go does not use an FMA
// instruction.
func Float32(a, b, c float32) float32 {
	sum := float64(a)*float64(b) + float64(c)
	const half, normal = 1 << 28, (1023 - 126) << 52
	if bits := math.Float64bits(sum); bits&(2*half-1) == half || bits<<1 < normal<<1 {
		return toOdd(a, b, c)
	}
	return float32(sum)
}

// toOdd computes Float32 with a sum that is rounded to odd instead of to nearest: an inexact sum
// gets the neighbor with an odd last bit, so it is never halfway (Boldo and Melquiond, Emulation of
// FMA and correctly rounded sums, 2008).
//
//go:noinline
func toOdd(a, b, c float32) float32 {
	// Knuth's two-sum: x+y is exactly sum+err.
	x, y := float64(a)*float64(b), float64(c)
	sum := float64(x + y)
	z := sum - x
	err := (x - (sum - z)) + (y - z)
	bits := math.Float64bits(sum)
	switch {
	case bits&1 == 1 || err == 0 || math.IsNaN(err):
	case (err > 0) == (sum > 0):
		bits++
	default:
		bits--
	}
	return float32(math.Float64frombits(bits))
}
