package conformance

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// unit bounds the relative error of one float32 operation. Rounding to nearest errs
// by half of it; the sums of matrix units, which cut off, by all.
const unit = 0x1p-23

// function bounds the relative error of exp, log and tanh in float32, which even
// good implementations do not round correctly.
const function = 4 * unit

// tiny is the smallest normal float32: what is smaller may be taken for zero.
const tiny = 0x1p-126

// real is a number in float64, and how far from it a float32 computation may be:
// the first-order bound of rounding errors, carried along with each operation
// (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.3). So a
// tolerance is never chosen: it follows from the formula and the numbers, and a
// cancellation widens it by just as much as it has to.
type real struct{ v, off float64 }

func exact(x float32) real { return real{float64(x), 0} }

// rounded is v after one more rounding.
func rounded(v, off float64) real { return real{v, off + unit*math.Abs(v)} }

func (a real) plus(b real) real  { return rounded(a.v+b.v, a.off+b.off) }
func (a real) minus(b real) real { return rounded(a.v-b.v, a.off+b.off) }

func (a real) times(b real) real {
	return rounded(a.v*b.v, math.Abs(a.v)*b.off+math.Abs(b.v)*a.off+a.off*b.off)
}

func (a real) over(b real) real {
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

// bfloat16 is a number that is rounded to bfloat16 before it is used, at a place
// that is not known exactly: half of the last of eight bits.
func (a real) bfloat16() real { return real{a.v, a.off + 0x1p-8*(math.Abs(a.v)+a.off)} }

// in is a number that is rounded to a type, at a place that is not known exactly.
func (a real) in(t device.Type) real {
	if t == device.BFloat16 {
		return a.bfloat16()
	}
	return a
}

// heldIn is what tensors of a type hold of numbers.
func heldIn(t device.Type, v []float32) []float32 {
	if t == device.BFloat16 {
		return allBFloat16(v)
	}
	return v
}

// toBFloat16 rounds to nearest, ties to even.
func toBFloat16(x float32) float32 {
	if x != x {
		return x
	}
	b := math.Float32bits(x)
	b += 0x7fff + b>>16&1
	return math.Float32frombits(b &^ 0xffff)
}

// sum is a sum of terms in whatever order: each of its n-1 additions errs by unit
// times a part of the sum, which no order makes greater than the sum of the terms'
// magnitudes (Higham 2002, section 4.2).
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

// reals are exact numbers.
func reals(v []float32) []real {
	out := make([]real, len(v))
	for i, x := range v {
		out[i] = exact(x)
	}
	return out
}

// nan is whether x is not a number.
func nan(x float32) bool { return x != x }

// close fails the test unless numbers are as near as they have to be.
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

// same fails the test unless numbers are the same bits. One NaN is like another.
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

// sameInts is likewise for Int32.
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
