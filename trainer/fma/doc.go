// Package fma implements the fused multiply-add of float32: a product and a sum with one rounding,
// bit-identical on every CPU.
//
// It is meant for portable code that must match vector instructions. For float64, use [math.FMA].
// If the result is NaN, its bits are unspecified.
package fma
