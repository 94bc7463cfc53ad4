package optim

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

func gradients(all ...[]float32) (out []*nn.Param) {
	for _, g := range all {
		out = append(out, &nn.Param{Shape: []int{len(g)}, Data: device.Host(make([]float32, len(g))), Grad: device.Host(g)})
	}
	return out
}

// TestClip checks the norm and the clipped gradients, also if the squares exceed the range of
// float32 and for values that are not finite.
func TestClip(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name string
		in   []float32
		most float64
		norm float64
		want []float32
	}{
		{"below", []float32{3, 4}, 6, 5, []float32{3, 4}},
		{"above", []float32{3, 4}, 1, 5, []float32{0.6, 0.8}},
		{"zero", []float32{0, 0}, 1, 0, []float32{0, 0}},
		{"none", nil, 1, 0, nil},
		{"no bound", []float32{3, 4}, math.Inf(1), 5, []float32{3, 4}},
		{"beyond the squares of float32", []float32{3e30, 4e30}, 1, 5e30, []float32{0.6, 0.8}},
		{"below the squares of float32", []float32{3e-30, 4e-30}, 1, 5e-30, []float32{3e-30, 4e-30}},
		{"infinite", []float32{1, inf}, 1, math.Inf(1), []float32{0, nan}},
		{"not a number", []float32{1, nan}, 1, math.NaN(), []float32{nan, nan}},
	} {
		t.Run(c.name, func(t *testing.T) {
			params := gradients(c.in[:len(c.in)/2], c.in[len(c.in)/2:])
			norm := GradNorm(processor, params)
			scale := ClipScale(norm, c.most)
			if !(norm == c.norm || math.Abs(norm-c.norm) <= 1e-7*c.norm || norm != norm && c.norm != c.norm) {
				t.Errorf("norm %v, want %v", norm, c.norm)
			}
			for i, want := range c.want {
				got := scale * c.in[i]
				if !(got == want || math.Abs(float64(got-want)) <= 1e-6*math.Abs(float64(want)) || got != got && want != want) {
					t.Errorf("element %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestNormSummationOrder checks that SumSquares guarantees its order: each partial sum separately,
// implemented again here, and blocks of 65,536 elements one after the other.
func TestNormSummationOrder(t *testing.T) {
	const block = 1 << 16
	lengths := []int{block - 1, block, block + 1, 3*block + 77}
	for n := range 40 {
		lengths = append(lengths, n)
	}
	g := random.New(3)
	for _, n := range lengths {
		grad := make([]float32, n)
		g.Uniform(-1, 1, grad)
		for i := range grad {
			grad[i] = float32(math.Ldexp(float64(grad[i]), i%5*7)) // so that sums are rounded
		}
		want := 0.0
		for part := range slices.Chunk(grad, block) {
			var s [8]float64
			for i, v := range part {
				s[i%8] = math.FMA(float64(v), float64(v), s[i%8]) // the result does not depend on FMA
			}
			want += s[0] + s[4] + (s[2] + s[6]) + (s[1] + s[5] + (s[3] + s[7]))
		}
		if got := processor.SumSquares(device.Host(grad)); got != want {
			t.Errorf("%d elements: %v, want %v", n, got, want)
		}
	}
}

// TestNormIsAccurate compares the norm of many elements with exact arithmetic.
func TestNormIsAccurate(t *testing.T) {
	grad := make([]float32, 100003)
	random.New(4).Uniform(-1, 1, grad)
	exact := new(big.Float).SetPrec(200)
	for _, v := range grad {
		x := new(big.Float).SetPrec(200).SetFloat64(float64(v))
		exact.Add(exact, x.Mul(x, x))
	}
	want, _ := exact.Sqrt(exact).Float64()
	if got := GradNorm(processor, gradients(grad[:50000], grad[50000:])); math.Abs(got-want) > 1e-14*want {
		t.Errorf("norm %v, want %v", got, want)
	}
}

// TestClipPanics checks that a maximum norm that is not above 0 panics.
func TestClipPanics(t *testing.T) {
	for _, most := range []float64{0, -1, math.NaN()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: no panic", most)
				}
			}()
			ClipScale(1, most)
		}()
	}
}
