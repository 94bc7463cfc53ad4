package fma_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/fma"
)

// exact returns the sum in exact arithmetic, rounded once.
func exact(a, b, c float32) float32 {
	sum := new(big.Float).SetPrec(2000).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
	want, _ := sum.Add(sum, big.NewFloat(float64(c))).Float32()
	return want
}

// TestRoundsOnce compares Float32 with exact arithmetic that is rounded once, in particular where
// two roundings give a different result.
func TestRoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	differing := 0
	for range 300000 {
		a := math.Float32frombits(r.Uint32()&0x807fffff | uint32(64+r.IntN(100))<<23)
		b := math.Float32frombits(r.Uint32()&0x807fffff | uint32(64+r.IntN(100))<<23)
		exponent := int(math.Float32bits(a)>>23&255) + int(math.Float32bits(b)>>23&255) - 127 + r.IntN(80) - 40
		c := math.Float32frombits(r.Uint32()&0x80000001 | uint32(min(254, max(0, exponent)))<<23)
		switch r.IntN(3) {
		case 0: // few bits, so that halfway cases are frequent
			a = math.Float32frombits(math.Float32bits(a) & 0xfff80000)
			b = math.Float32frombits(math.Float32bits(b) & 0xffff0000)
		case 1: // a product of half an ulp of c, minus a small difference
			trace := math.Ldexp(1, -13-r.IntN(11))
			a, b = float32(1+trace), float32(1-trace)
			c = math.Float32frombits(r.Uint32()&0x807fffff | (127+24)<<23)
			if r.IntN(2) == 0 { // the same below the smallest normal number
				a, b, c = a*0x1p-75, b*0x1p-75, math.Float32frombits(r.Uint32()&0x807fffff)
			}
		case 2: // many sums below the smallest normal number
			a, c = a*0x1p-64, math.Float32frombits(r.Uint32()&0x80ffffff)
		}
		want := exact(a, b, c)
		if got := fma.Float32(a, b, c); got != want {
			t.Fatalf("%x*%x+%x is %x, want %x", a, b, c, got, want)
		}
		if float32(float64(a)*float64(b)+float64(c)) != want {
			differing++
		}
	}
	if differing == 0 {
		t.Error("no case where two roundings go wrong: the test shows nothing")
	}
}

// TestInfinitiesAndNaN checks the results for infinities, NaN, and overflow.
func TestInfinitiesAndNaN(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct{ a, b, c, want float32 }{
		{inf, 2, 1, inf},
		{inf, -2, 1, -inf},
		{1, 2, -inf, -inf},
		{0x1p100, 0x1p100, 0, inf},
		{0x1p100, 0x1p100, -inf, -inf},
		{inf, 0, 1, nan},
		{inf, 1, -inf, nan},
		{nan, 1, 1, nan},
		{1, 1, nan, nan},
	} {
		if got := fma.Float32(c.a, c.b, c.c); got != c.want && (got == got || c.want == c.want) {
			t.Errorf("%v*%v+%v is %v, want %v", c.a, c.b, c.c, got, c.want)
		}
	}
}

// FuzzFloat32 compares Float32 with exact arithmetic that is rounded once, for any finite values.
func FuzzFloat32(f *testing.F) {
	f.Add(float32(0.3), float32(7), float32(-2.1))
	// The exact sum is close to halfway between two float32 values. In float64 it rounds to exactly
	// halfway, and then to the wrong value.
	f.Add(float32(1+0x1p-20), float32((1-0x1p-20)*0x1p-24), float32(1+0x1p-23))
	f.Add(float32(1+0x1p-20), float32(-(1-0x1p-20)*0x1p-24), float32(1+0x1p-23))
	f.Add(float32(1+0x1p-20), float32((1-0x1p-20)*0x1p-24), float32(-1-0x1p-23))
	f.Add(float32(1+0x1p-20), float32(-(1-0x1p-20)*0x1p-24), float32(-1-0x1p-23))
	f.Fuzz(func(t *testing.T, a, b, c float32) {
		for _, v := range []float32{a, b, c} {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return // not supported by exact arithmetic
			}
		}
		if got, want := fma.Float32(a, b, c), exact(a, b, c); got != want {
			t.Errorf("%x*%x+%x is %x, want %x", a, b, c, got, want)
		}
	})
}
