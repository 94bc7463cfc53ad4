package conformance

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkUpdates(s *suite) {
	s.run("SumSquares", func(s *suite) {
		for _, n := range lengths {
			for _, magnitude := range []float32{1, 1e30, 1e-30} { // squares that overflow or underflow float32
				x := s.normal(n)
				want := 0.0
				for i := range x {
					x[i] *= magnitude
					want += float64(x[i]) * float64(x[i])
				}
				t := s.input(x)
				if got := s.d.SumSquares(t); !(math.Abs(got-want) <= want*float64(n)*0x1p-52) {
					s.Errorf("%d squares of numbers of about %v are %v, want %v", n, magnitude, got, want)
				}
			}
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				for _, at := range []int{0, n / 2, n - 1} {
					x := s.normal(n)
					x[at] = float32(bad)
					if got := s.d.SumSquares(s.input(x)); !math.IsNaN(got) && !math.IsInf(got, 0) {
						s.Errorf("%d squares with one of %v are %v", n, bad, got)
					}
				}
			}
		}
		if got := s.d.SumSquares(device.Tensor{}); got != 0 {
			s.Errorf("no squares are %v", got)
		}
	})
	s.run("Scale", func(s *suite) {
		for _, n := range lengths {
			x, want := s.normal(n), make([]float32, n)
			for i := range x {
				want[i] = 0.3 * x[i]
			}
			y, same := s.empty(n), s.result(x)
			s.d.Scale(y, s.input(x), 0.3)
			s.d.Scale(same, same, 0.3)
			s.same("0.3*x", s.floats(y), want)
			s.same("0.3*x in place", s.floats(same), want)
		}
	})
	s.run("Rounded", (*suite).roundedValues)
	s.run("SGD", func(s *suite) {
		for _, f := range []device.Factors{
			{Rate: -0.1, GradScale: 1},
			{Rate: -0.1, GradScale: 0.37, Decay: 0.01},
			{Rate: -0.1, GradScale: 1, Beta1: 0.9},
			{Rate: -0.1, GradScale: 0.37, Beta1: 0.9, Decay: 0.01},
			{Rate: -0.1, GradScale: 0.37, Beta1: 0.8, Decay: 0.1, Nesterov: true},
		} {
			for _, n := range lengths {
				s.sgd(f, n)
			}
		}
	})
	s.run("Adam", func(s *suite) {
		const beta1, beta2 = 0.8, 0.95
		plain := device.Factors{GradScale: 1, Beta1: beta1, Beta2: beta2, New1: float32(1) - beta1, New2: float32(1) - beta2, Keep: 1, Eps: 1e-8}
		l2, decoupled, large := plain, plain, plain
		l2.Decay, l2.GradScale = 0.1, 0.37
		decoupled.Keep = 0.95
		large.Eps = 0.3 // added to the square root after the correction
		for _, f := range []device.Factors{plain, l2, decoupled, large} {
			for _, n := range lengths {
				s.adam(f, n)
			}
		}
	})
}

// roundedValues checks that each rule also stores the new values in bfloat16.
func (s *suite) roundedValues() {
	f := device.Factors{GradScale: 0.37, Beta1: 0.9, Beta2: 0.99, New1: 0.1, New2: 0.01, Keep: 0.95, Correction: 1, Rate: -0.1}
	for _, r := range device.Rules() {
		for _, n := range lengths {
			a := arrays(s.result(s.normal(n)), s.input(s.normal(n)), s.result(make([]float32, n)), s.result(make([]float32, n)))
			a.Rounded = s.matrixOf(device.BFloat16, nans(n), 1, n, whole, true).Data
			s.d.Update(r, a, f)
			s.same(fmt.Sprintf("%s: rounded values of %d numbers", r, n), s.floats(a.Rounded), roundTo(device.BFloat16, s.floats(a.Value)))
		}
	}
}

// checkRules checks the rules with one or no state array.
func checkRules(s *suite) {
	s.run("HasRule", func(s *suite) {
		for _, r := range device.Rules() {
			if !s.d.HasRule(r) {
				s.Errorf("the device does not have the rule %q", r)
			}
		}
		if s.d.HasRule("none") {
			s.Error("the device has an unknown rule")
		}
	})
	f := device.Factors{GradScale: 0.37, Beta1: 0.9, Beta2: 0.99, New1: 0.1, New2: 0.01, Keep: 0.95, Rate: -0.1}
	s.run("Lion", func(s *suite) {
		s.rule(device.RuleLion, f, func(w, m, g real) (real, real) {
			d := exact(f.GradScale).times(g)
			c := exact(f.Beta1).times(m).plus(exact(f.New1).times(d))
			sign := exact(0)
			if c.v > 0 {
				sign = exact(1)
			} else if c.v < 0 {
				sign = exact(-1)
			}
			return exact(f.Keep).times(w).plus(exact(f.Rate).times(sign)), exact(f.Beta2).times(m).plus(exact(f.New2).times(d))
		})
	})
	s.run("MuonMomentum", func(s *suite) {
		s.rule(device.RuleMuonMomentum, f, func(_, m, g real) (real, real) {
			d := exact(f.New1).times(exact(f.GradScale).times(g))
			m = exact(f.Beta1).times(m).plus(d)
			return d.plus(exact(f.Beta1).times(m)), m
		})
	})
	s.run("MuonStep", func(s *suite) {
		s.rule(device.RuleMuonStep, f, func(w, m, g real) (real, real) {
			return exact(f.Keep).times(w).plus(exact(f.Rate).times(g)), m
		})
	})
	s.run("Normalize", func(s *suite) {
		for _, n := range lengths {
			x, sum := s.normal(n), 0.0
			for _, v := range x {
				sum += float64(v) * float64(v)
			}
			norm := math.Sqrt(sum)
			want, large := make([]real, n), make([]real, n)
			for i, v := range x { // a rounded factor and a product
				want[i] = rounded(float64(v)/norm, unit*math.Abs(float64(v)/norm))
				large[i] = rounded(float64(v)/1e9, unit*math.Abs(float64(v)/1e9))
			}
			y, same := s.empty(n), s.result(x)
			s.d.Normalize(y, s.input(x), 1e-7)
			s.d.Normalize(same, same, 1e9)
			s.close("x/norm", s.floats(y), want)
			s.close("x/eps in place", s.floats(same), large)
		}
		zero := s.result(make([]float32, 3))
		s.d.Normalize(zero, zero, 1e-7)
		s.same("0/eps", s.floats(zero), make([]float32, 3))
	})
}

// rule runs three steps of a rule with one state array, or none if it does not change it. Each is
// compared with a formula, which returns the new value and state. The first step has an element
// without a gradient.
func (s *suite) rule(r device.Rule, f device.Factors, formula func(value, state, grad real) (real, real)) {
	s.Helper()
	for _, n := range lengths {
		value, state := s.result(s.normal(n)), s.result(make([]float32, n))
		for step := range 3 {
			grad := s.normal(n)
			if step == 0 {
				grad[0] = 0
			}
			w, m := reals(s.floats(value)), reals(s.floats(state))
			s.d.Update(r, arrays(value, s.input(grad), state), f)
			for i := range w {
				w[i], m[i] = formula(w[i], m[i], exact(grad[i]))
			}
			what := fmt.Sprintf("step %d of %d numbers", step, n)
			s.close(what+": value", s.floats(value), w)
			s.close(what+": state", s.floats(state), m)
		}
	}
}

// arrays returns the arrays of an update.
func arrays(value, grad device.Tensor, state ...device.Tensor) device.Arrays {
	a := device.Arrays{Value: value, Grad: grad}
	copy(a.State[:], state)
	return a
}

// sgd runs three steps. Each is compared with the formulas of torch.optim.SGD, starting from the
// device's own state.
func (s *suite) sgd(f device.Factors, n int) {
	s.Helper()
	value := s.result(s.normal(n))
	buffer := device.Tensor{}
	if f.Beta1 != 0 {
		buffer = s.empty(n) // the first step does not read it
	}
	for step := range 3 {
		f.First = step == 0
		what := fmt.Sprintf("step %d of %d numbers, %+v", step, n, f)
		w, b, g := reals(s.floats(value)), reals(s.floats(buffer)), reals(s.normal(n))
		s.d.Update(device.RuleSGD, arrays(value, s.input(round(g)), buffer), f)
		for i := range w {
			d := g[i].times(exact(f.GradScale)).plus(exact(f.Decay).times(w[i]))
			if len(b) > 0 {
				if f.First {
					b[i] = d
				} else {
					b[i] = exact(f.Beta1).times(b[i]).plus(d)
				}
				if f.Nesterov {
					d = d.plus(exact(f.Beta1).times(b[i]))
				} else {
					d = b[i]
				}
			}
			w[i] = w[i].plus(exact(f.Rate).times(d))
		}
		s.close(what+": value", s.floats(value), w)
		s.close(what+": buffer", s.floats(buffer), b)
	}
}

// adam runs three steps, compared with the formulas of torch.optim.Adam and AdamW.
func (s *suite) adam(f device.Factors, n int) {
	s.Helper()
	value, average, squares := s.result(s.normal(n)), s.result(make([]float32, n)), s.result(make([]float32, n))
	for step := 1; step <= 3; step++ {
		f.Correction = float32(math.Sqrt(1 - math.Pow(float64(f.Beta2), float64(step))))
		f.Rate = float32(-0.1 / (1 - math.Pow(float64(f.Beta1), float64(step))))
		what := fmt.Sprintf("step %d of %d numbers, %+v", step, n, f)
		w, m, v, g := reals(s.floats(value)), reals(s.floats(average)), reals(s.floats(squares)), reals(s.normal(n))
		s.d.Update(device.RuleAdam, arrays(value, s.input(round(g)), average, squares), f)
		for i := range w {
			d := g[i].times(exact(f.GradScale)).plus(exact(f.Decay).times(w[i]))
			m[i] = exact(f.Beta1).times(m[i]).plus(exact(f.New1).times(d))
			v[i] = exact(f.Beta2).times(v[i]).plus(exact(f.New2).times(d).times(d))
			divisor := v[i].sqrt().div(exact(f.Correction)).plus(exact(f.Eps))
			w[i] = exact(f.Keep).times(w[i]).plus(exact(f.Rate).times(m[i]).div(divisor))
		}
		s.close(what+": average", s.floats(average), m)
		s.close(what+": squares", s.floats(squares), v)
		s.close(what+": value", s.floats(value), w)
	}
}
