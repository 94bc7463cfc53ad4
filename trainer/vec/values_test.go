package vec_test

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// ulps returns the distance of got from want in units in the last place of want.
func ulps(got float32, want float64) float64 {
	nearest := float32(want)
	if got == nearest || got != got && want != want {
		return 0
	}
	_, exponent := math.Frexp(want)
	unit := math.Ldexp(1, max(exponent-24, -149))
	return math.Abs(float64(got)-want) / unit
}

// everyFloat calls f with values from all of float32: each step-th, by their bits.
func everyFloat(step uint32, f func(x []float32)) {
	x := make([]float32, 0, 4096)
	for bits := uint64(0); bits < 1<<32; bits += uint64(step) {
		x = append(x, math.Float32frombits(uint32(bits)))
		if len(x) == cap(x) {
			f(x)
			x = x[:0]
		}
	}
	f(x)
}

// exp returns a function for e^x, computed by ExpSum with a maximum of 0.
func exp(u *vec.Unit) func(y, x []float32) {
	return func(y, x []float32) { u.ExpSum(y, x, 0) }
}

// TestFunctionsAreAccurate checks that the error of elementwise functions is small over all of
// float32.
func TestFunctionsAreAccurate(t *testing.T) {
	u := vec.New()
	for _, c := range []struct {
		name string
		f    func(y, x []float32)
		want func(x float64) float64
		most float64 // ulps
	}{
		{"ExpSum", exp(u), math.Exp, 1.1},
		{"Tanh", u.Tanh, math.Tanh, 1.5},
		{"ReLU", u.ReLU, func(x float64) float64 { return math.Max(x, 0) }, 0},
	} {
		worst, at := 0.0, float32(0)
		y := make([]float32, 4096)
		everyFloat(2003, func(x []float32) {
			c.f(y[:len(x)], x)
			for i, v := range x {
				if d := ulps(y[i], c.want(float64(v))); !(d <= worst) {
					worst, at = d, v
				}
			}
		})
		t.Logf("%s: %.2f units in the last place at %v", c.name, worst, at)
		if !(worst <= c.most) {
			t.Errorf("%s(%v): error of %v units in the last place, want at most %v", c.name, at, worst, c.most)
		}
	}
}

// gelu returns GELU and its derivative in float64.
func gelu(x float64) (y, slope float64) {
	const root, cubic = 0.7978845608028654, 0.044715
	t := math.Tanh(root * (x + cubic*x*x*x))
	return x / 2 * (1 + t), (1+t)/2 + x/2*(1-t*t)*root*(1+3*cubic*x*x)
}

// TestGELU compares GELU and its gradient with float64.
func TestGELU(t *testing.T) {
	u := vec.New()
	n := 200001
	x, dy, y, dx := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], dy[i] = float32(i-n/2)/10000, 3
	}
	u.GELU(y, x)
	u.GELUGrad(dx, dy, x)
	for i, v := range x {
		want, slope := gelu(float64(v))
		if d := math.Abs(float64(y[i]) - want); d > 2e-7*math.Max(math.Abs(want), 0.5) {
			t.Fatalf("GELU(%v) is %v, want %v", v, y[i], want)
		}
		if d := math.Abs(float64(dx[i]) - 3*slope); d > 3*5e-7 {
			t.Fatalf("GELUGrad(%v) is %v, want %v", v, dx[i], 3*slope)
		}
	}
}

// TestLimits checks elementwise functions for infinities, NaN, zeros, subnormals, and the limits
// of their ranges.
func TestLimits(t *testing.T) {
	u := vec.New()
	negativeZero := float32(math.Copysign(0, -1))
	grad := func(f func(dx, dy, x []float32)) func(y, x []float32) {
		return func(y, x []float32) { f(y, []float32{2}, x) }
	}
	for _, c := range []struct {
		name    string
		f       func(y, x []float32)
		x, want float32
	}{
		{"ExpSum", exp(u), inf, inf}, {"ExpSum", exp(u), -inf, 0}, {"ExpSum", exp(u), nan, nan}, {"ExpSum", exp(u), 0, 1},
		{"ExpSum", exp(u), 88.72284, inf}, {"ExpSum", exp(u), -103.97, 0x1p-149}, {"ExpSum", exp(u), -103.98, 0},
		{"Tanh", u.Tanh, inf, 1}, {"Tanh", u.Tanh, -inf, -1}, {"Tanh", u.Tanh, nan, nan},
		{"Tanh", u.Tanh, negativeZero, negativeZero}, {"Tanh", u.Tanh, 0x1p-149, 0x1p-149},
		{"ReLU", u.ReLU, nan, nan}, {"ReLU", u.ReLU, -inf, 0}, {"ReLU", u.ReLU, inf, inf},
		{"GELU", u.GELU, inf, inf}, {"GELU", u.GELU, -inf, nan}, {"GELU", u.GELU, -1e30, negativeZero}, {"GELU", u.GELU, 1e30, 1e30},
		{"GELUGrad", grad(u.GELUGrad), inf, 2}, {"GELUGrad", grad(u.GELUGrad), -inf, negativeZero}, {"GELUGrad", grad(u.GELUGrad), nan, nan},
		{"ReLUGrad", grad(u.ReLUGrad), 0, 0}, {"ReLUGrad", grad(u.ReLUGrad), 0x1p-149, 2}, {"ReLUGrad", grad(u.ReLUGrad), -1, 0}, {"ReLUGrad", grad(u.ReLUGrad), nan, 2},
		{"TanhGrad", grad(u.TanhGrad), 0.5, 1.5}, {"TanhGrad", grad(u.TanhGrad), 1, 0},
	} {
		y := []float32{7}
		c.f(y, []float32{c.x})
		if !sameBits32(y[0], c.want) {
			t.Errorf("%s of %v is %v, want %v", c.name, c.x, y[0], c.want)
		}
	}
}

// TestBF16 checks that conversion to bfloat16 rounds to nearest even.
func TestBF16(t *testing.T) {
	u := vec.New()
	halves := make([]uint16, 4096)
	wide := make([]float32, 4096)
	check := func(x []float32) {
		n := len(x)
		u.RoundBF16(halves[:n], x)
		u.WidenBF16(wide[:n], halves[:n])
		for i, v := range x {
			if math.Float32bits(wide[i]) != uint32(halves[i])<<16 {
				t.Fatalf("%x is %04x, then %x", v, halves[i], wide[i])
			}
			if v != v {
				if halves[i] != 0x7fc0 {
					t.Fatalf("NaN is %04x", halves[i])
				}
				continue
			}
			bits := math.Float32bits(v)
			low := uint16(bits >> 16)
			if rest := bits & 0xffff; rest > 0x8000 || rest == 0x8000 && low&1 == 1 {
				low++
			}
			if halves[i] != low {
				t.Fatalf("%x is %04x, want %04x", v, halves[i], low)
			}
		}
	}
	everyFloat(4001, check)
	check([]float32{math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000), math.Float32frombits(0x3f808001),
		math.Float32frombits(0x7f7fffff), math.Float32frombits(0x7fffffff), math.Float32frombits(0xff800001), inf, -inf})
}
