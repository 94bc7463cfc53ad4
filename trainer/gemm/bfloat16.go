package gemm

import "math"

// rounded rounds x to bfloat16, to nearest even. The result is a float32 whose last 16 bits are
// zero. NaN remains NaN.
func rounded(x float32) float32 {
	bits := math.Float32bits(x)
	if bits&^(1<<31) > 0x7f800000 {
		// The only bit that makes it a NaN may be in the lower half.
		return math.Float32frombits(bits&^0xffff | 1<<22)
	}
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

// roundAll rounds elements in place.
func roundAll(x []float32) {
	for i, v := range x {
		x[i] = rounded(v)
	}
}

// pairOf returns a packed element of two terms.
func pairOf(even, odd float32) float32 {
	return math.Float32frombits(math.Float32bits(rounded(even))>>16 | math.Float32bits(rounded(odd)))
}
