package conformance

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// unit bounds the relative error of one float32 operation. Rounding to nearest has an error of up
// to half of it; sums in matrix units, which truncate, of up to all of it.
const unit = 0x1p-23

// function bounds the relative error of exp, log, and tanh in float32, which even good
// implementations do not round correctly.
const function = 4 * unit

// tiny is the smallest normal float32. Smaller values may be flushed to zero.
const tiny = 0x1p-126

// real is a float64 value with a bound on the error of a float32 computation: the first-order bound
// of rounding errors, propagated through each operation (Higham, Accuracy and Stability of
// Numerical Algorithms, 2002, section 3.3). So no tolerance is chosen: it follows from the formula
// and the values, and cancellation widens it by the required amount.
type real struct{ v, off float64 }

func exact(x float32) real { return real{float64(x), 0} }

// rounded returns v after one more rounding.
func rounded(v, off float64) real { return real{v, off + unit*math.Abs(v)} }

func (a real) plus(b real) real  { return rounded(a.v+b.v, a.off+b.off) }
func (a real) minus(b real) real { return rounded(a.v-b.v, a.off+b.off) }

func (a real) times(b real) real {
	return rounded(a.v*b.v, math.Abs(a.v)*b.off+math.Abs(b.v)*a.off+a.off*b.off)
}

func (a real) div(b real) real {
	v := a.v / b.v
	return rounded(v, (a.off+math.Abs(v)*b.off)/(math.Abs(b.v)-b.off))
}

func (a real) sqrt() real {
	v := math.Sqrt(a.v)
	return rounded(v, max(math.Sqrt(a.v+a.off)-v, v-math.Sqrt(max(0, a.v-a.off))))
}

func (a real) exp() real {
	v := math.Exp(a.v)
	return real{v, math.Exp(a.v+a.off) - v + function*v}
}

func (a real) log() real {
	v := math.Log(a.v)
	return real{v, v - math.Log(a.v-a.off) + function*math.Abs(v)}
}

func (a real) tanh() real {
	v := math.Tanh(a.v)
	steepest := math.Tanh(max(0, math.Abs(a.v)-a.off))
	return real{v, a.off*(1-steepest*steepest) + function*math.Abs(v)}
}

// bfloat16 returns a with the error of rounding to bfloat16 at an unspecified position: half of the
// last of eight bits.
func (a real) bfloat16() real { return real{a.v, a.off + 0x1p-8*(math.Abs(a.v)+a.off)} }

// in returns a with the error of rounding to a type at an unspecified position.
func (a real) in(t device.Type) real {
	if t == device.BFloat16 {
		return a.bfloat16()
	}
	return a
}

// roundTo rounds values to a type.
func roundTo(t device.Type, v []float32) []float32 {
	if t == device.BFloat16 {
		return allBFloat16(v)
	}
	return v
}

// toBFloat16 rounds to nearest even.
func toBFloat16(x float32) float32 {
	if x != x {
		return x
	}
	b := math.Float32bits(x)
	b += 0x7fff + b>>16&1
	return math.Float32frombits(b &^ 0xffff)
}

// sum is a sum of terms in any order. Each of its n-1 additions has an error of unit times a
// partial sum, which is at most the sum of the terms' magnitudes in any order (Higham 2002, section
// 4.2).
type sum struct {
	v, size, off float64
	n            int
}

func (s *sum) add(a real) {
	s.v += a.v
	s.size += math.Abs(a.v) + a.off
	s.off += a.off
	s.n++
}

func (s *sum) real() real { return real{s.v, s.off + float64(s.n)*unit*s.size} }

// reals returns exact values.
func reals(v []float32) []real {
	out := make([]real, len(v))
	for i, x := range v {
		out[i] = exact(x)
	}
	return out
}

// nan reports whether x is NaN.
func nan(x float32) bool { return x != x }

// close fails the test unless values are within the bounds.
func (s *suite) close(what string, got []float32, want []real) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := float64(got[i])
		switch {
		case math.IsNaN(w.v) || math.IsInf(w.v, 0):
			if g == w.v || math.IsNaN(w.v) && math.IsNaN(g) {
				continue
			}
		case math.IsNaN(w.off) || math.IsInf(w.off, 0):
			s.Fatalf("%s: element %d has no bound", what, i)
		case math.Abs(g-w.v) <= w.off+tiny:
			continue
		}
		s.Errorf("%s: element %d of %d is %v, want %v ± %.3g", what, i, len(want), g, w.v, w.off)
		return
	}
}

// same fails the test unless values are bit-identical. All NaNs are equal.
func (s *suite) same(what string, got, want []float32) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			s.Errorf("%s: element %d of %d is %v, want the very bits of %v", what, i, len(want), g, w)
			return
		}
	}
}

// sameInts fails the test unless Int32 values are equal.
func (s *suite) sameInts(what string, got, want []int32) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		if got[i] != w {
			s.Errorf("%s: element %d of %d is %d, want %d", what, i, len(want), got[i], w)
			return
		}
	}
}
