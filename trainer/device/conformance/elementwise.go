package conformance

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// lengths are lengths of tensors: one element, part of a vector register, more than one register,
// and more than one thread or block processes.
var lengths = []int{1, 3, 8, 17, 100, 1027, 70001}

// activations contains all activations except Identity.
var activations = []device.Activation{device.ReLU, device.Tanh, device.GELU}

func checkElementwise(s *suite) {
	s.run("Add", func(s *suite) {
		for _, n := range lengths {
			a, b := s.normal(n), s.normal(n)
			total, twice := make([]float32, n), make([]float32, n)
			for i := range n {
				total[i], twice[i] = a[i]+b[i], a[i]+a[i]
			}
			y, left, right, inout := s.empty(n), s.result(a), s.result(b), s.result(a)
			s.d.Add(y, s.input(a), s.input(b))
			s.d.Add(left, left, s.input(b))
			s.d.Add(right, s.input(a), right)
			s.d.Add(inout, inout, inout)
			s.same("a + b", s.floats(y), total)
			s.same("a += b", s.floats(left), total)
			s.same("b = a + b", s.floats(right), total)
			s.same("a += a", s.floats(inout), twice)
		}
	})
	s.run("Activate", func(s *suite) {
		for _, f := range append(activations, device.Identity) {
			for _, n := range lengths {
				s.activation(f, s.arguments(n))
			}
		}
	})
	s.run("NotFinite", func(s *suite) {
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		x := make([]float32, 41)
		x[3], x[20], x[40] = nan, inf, -inf
		x[21] = nan
		y := s.empty(len(x))
		want := make([]real, len(x))
		s.d.Activate(device.ReLU, y, s.input(x))
		want[3].v, want[21].v, want[20].v = math.NaN(), math.NaN(), math.Inf(1)
		s.close("relu", s.floats(y), want)
		s.d.Activate(device.Tanh, y, s.input(x))
		want[20].v, want[40].v = 1, -1
		s.close("tanh", s.floats(y), want)
	})
	s.run("Cast", func(s *suite) {
		for _, n := range lengths {
			v := s.arguments(n)
			for i, x := range []uint32{0x3f808000, 0x3f818000, 0xbf808001, 0x3f807fff, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffffffff, 0x80000000} {
				if i < n {
					v[i] = math.Float32frombits(x) // ties, overflow, infinities, and NaNs that lose their last bit
				}
			}
			narrow, wide := s.d.Alloc(device.BFloat16, n+3).Slice(3, n+3), s.empty(n)
			s.d.Cast(narrow, s.input(v))
			s.d.Cast(wide, narrow)
			s.same("rounded and widened", s.floats(wide), allBFloat16(v))
		}
	})
}

// arguments returns n values of all magnitudes that matter for an activation.
func (s *suite) arguments(n int) []float32 {
	v := s.normal(n)
	for i := range v {
		switch i % 8 {
		case 1:
			v[i] *= 10
		case 2:
			v[i] *= 1e-3
		case 3:
			v[i] *= 100
		case 4:
			v[i] *= 1e-12
		case 7:
			v[i] = 0
		}
	}
	return v
}

func (s *suite) activation(f device.Activation, x []float32) {
	s.Helper()
	n := len(x)
	what := fmt.Sprintf("activation %d of %d numbers", f, n)
	want := reals(x)
	for i := range want {
		want[i] = activate(f, want[i])
	}
	y, inout := s.empty(n), s.result(x)
	s.d.Activate(f, y, s.input(x))
	s.d.Activate(f, inout, inout)
	s.close(what, s.floats(y), want)
	s.close(what+", in place", s.floats(inout), want)

	// The argument that a gradient does not use is NaN.
	values, dy := s.floats(y), s.normal(n)
	in, out := s.input(x), s.input(nans(n))
	if f != device.GELU {
		in, out = out, s.input(values)
	}
	grads := make([]real, n)
	for i := range grads {
		grads[i] = exact(dy[i]).times(derivative(f, exact(x[i]), exact(values[i])))
	}
	dx, same := s.empty(n), s.result(dy)
	s.d.ActivateGrad(f, dx, s.input(dy), in, out)
	s.d.ActivateGrad(f, same, same, in, out)
	s.close(what+", gradient", s.floats(dx), grads)
	s.close(what+", gradient in place of dy", s.floats(same), grads)

	// An in-place layer has one tensor for x and y, which may also hold the gradient.
	inPlace := s.result(values)
	if f == device.GELU {
		inPlace = s.result(x)
	}
	s.d.ActivateGrad(f, inPlace, s.input(dy), inPlace, inPlace)
	s.close(what+", gradient in place of x and y", s.floats(inPlace), grads)
}

// activate returns f(x).
func activate(f device.Activation, x real) real {
	switch f {
	case device.ReLU:
		if x.v <= 0 {
			return real{0, max(0, x.v+x.off)}
		}
		return x
	case device.Tanh:
		return x.tanh()
	case device.GELU:
		half := x.times(exact(0.5))
		return half.plus(half.times(geluInner(x).tanh()))
	default:
		return x
	}
}

// These are the constants of the tanh approximation of GELU (Hendrycks and Gimpel, 2016).
const cubic = 0.044715

var rootTwoOverPi = rounded(math.Sqrt(2/math.Pi), 0)

// geluInner returns the argument of GELU's tanh.
func geluInner(x real) real {
	return rootTwoOverPi.times(x.plus(rounded(cubic, 0).times(x.times(x).times(x))))
}

// derivative returns f'(x), where y = f(x) as computed by the device.
func derivative(f device.Activation, x, y real) real {
	one, half := exact(1), exact(0.5)
	switch f {
	case device.ReLU:
		if x.v > 0 {
			return one
		}
		return real{}
	case device.Tanh:
		return one.minus(y.times(y))
	case device.GELU:
		t := geluInner(x).tanh()
		inner := rootTwoOverPi.times(one.plus(rounded(3*cubic, 0).times(x.times(x))))
		return half.plus(half.times(t)).plus(half.times(x).times(one.minus(t.times(t))).times(inner))
	default:
		return one
	}
}
