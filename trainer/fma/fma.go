//go:build !arm64

package fma

import "math"

// Float32 returns a*b+c, rounded to float32 once. The product is exact in float64,
// so whether Go fuses it with the addition makes no difference. The sum is rounded
// to float64 first, which can only change its rounding to float32 where it then
// seems to lie in the very middle between two neighbours; below 2^-126 neighbours
// are further apart than elsewhere, and the middle is not looked for.
//
// It is too long to be inlined, which makes a loop over it ten times slower than
// one of plain products and sums: the price of the same bits on a processor
// without an instruction for it that Go may use.
func Float32(a, b, c float32) float32 {
	sum := float64(a)*float64(b) + float64(c)
	const half, normal = 1 << 28, (1023 - 126) << 52
	if bits := math.Float64bits(sum); bits&(2*half-1) == half || bits<<1 < normal<<1 {
		return toOdd(a, b, c)
	}
	return float32(sum)
}

// toOdd is Float32 by way of a sum that is rounded to odd instead of to nearest:
// one that is not exact gets the neighbour with an odd last bit, and is never
// taken for a middle (Boldo and Melquiond, Emulation of FMA and correctly rounded
// sums, 2008).
//
//go:noinline
func toOdd(a, b, c float32) float32 {
	// Knuth's two-sum: x+y is sum+err exactly.
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
