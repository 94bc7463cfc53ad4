// Package fma is the fused multiply-add of float32: a product and a sum with one
// rounding, the same bits on every processor.
//
// It is for portable code that must agree with vector instructions. It has no
// float64 form, which is [math.FMA], and does not promise which NaN a result is
// that is not a number.
package fma
