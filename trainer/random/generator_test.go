package random

import (
	"math"
	"math/big"
	"slices"
	"testing"
)

// The tenthousandth draw of seed 5489 is the known answer of the C++ standard
// ([rand.predef]) for mt19937.
func TestUint32KnownAnswer(t *testing.T) {
	g := New(5489)
	for range 9999 {
		g.Uint32()
	}
	if got := g.Uint32(); got != 4123659995 {
		t.Errorf("draw 10000 = %d, want 4123659995", got)
	}
}

func TestSeedUsesLow32Bits(t *testing.T) {
	if a, b := New(7).Uint32(), New(7+1<<32).Uint32(); a != b {
		t.Errorf("seeds 7 and 2^32+7 draw %d and %d, want equal", a, b)
	}
}

func TestPermLimits(t *testing.T) {
	if got := New(0).Perm(0); len(got) != 0 {
		t.Errorf("Perm(0) = %v, want none", got)
	}
	for _, n := range []int{-1, MaxPerm + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Perm(%d) did not panic", n)
				}
			}()
			New(0).Perm(n)
		}()
	}
}

func TestPermIsPermutation(t *testing.T) {
	p := New(3).Perm(1000)
	slices.Sort(p)
	for i, v := range p {
		if i != v {
			t.Fatalf("element %d missing", i)
		}
	}
}

func TestUniformRefusesReversedBounds(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Uniform(1, 0) did not panic")
		}
	}()
	New(0).Uniform(1, 0, make([]float32, 1))
}

// checkFMA compares fma32 with exact arithmetic rounded once.
func checkFMA(t *testing.T, a, b, c float32) {
	t.Helper()
	for _, v := range []float32{a, b, c} {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) || f != 0 && (math.Abs(f) < 1e-15 || math.Abs(f) > 1e15) {
			return // out of the range that the generator needs
		}
	}
	exact := new(big.Float).SetPrec(400)
	exact.Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
	exact.SetPrec(400).Add(exact, big.NewFloat(float64(c)))
	want, _ := exact.Float32()
	if got := fma32(a, b, c); got != want {
		t.Errorf("fma32(%v, %v, %v) = %v, want %v", a, b, c, got, want)
	}
}

func FuzzFMA(f *testing.F) {
	f.Add(float32(0.3), float32(7), float32(-2.1))
	// The exact sum lies beside the middle between two float32, but in float64 it
	// rounds to that middle, and from there to the wrong one.
	f.Add(float32(1+0x1p-20), float32((1-0x1p-20)*0x1p-24), float32(1+0x1p-23))
	f.Add(float32(1+0x1p-20), float32(-(1-0x1p-20)*0x1p-24), float32(1+0x1p-23))
	f.Add(float32(1+0x1p-20), float32((1-0x1p-20)*0x1p-24), float32(-1-0x1p-23))
	f.Add(float32(1+0x1p-20), float32(-(1-0x1p-20)*0x1p-24), float32(-1-0x1p-23))
	f.Fuzz(func(t *testing.T, a, b, c float32) { checkFMA(t, a, b, c) })
}

func TestFMARandom(t *testing.T) {
	g := New(11)
	var v [3]float32
	for range 20000 {
		for i := range v {
			exp := int(g.Uint32()%60) - 30
			v[i] = float32(math.Ldexp(float64(g.Float32())-0.5, exp))
		}
		checkFMA(t, v[0], v[1], v[2])
	}
}

func BenchmarkPerm60000(b *testing.B) {
	for range b.N {
		New(0).Perm(60000)
	}
}
