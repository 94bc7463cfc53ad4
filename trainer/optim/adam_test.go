package optim

import (
	"math"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

func single(value, grad float32) *nn.Param {
	return &nn.Param{Name: "p", Shape: []int{1}, Data: device.Host([]float32{value}), Grad: device.Host([]float32{grad})}
}

// TestNewAdamErrors checks that options outside of their ranges are rejected, including values
// that float32 rounds to 0, 1, or infinity.
func TestNewAdamErrors(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.LR = -1 }, "learning rate is -1"},
		{func(o *Options) { o.LR = math.Inf(1) }, "learning rate is +Inf"},
		{func(o *Options) { o.Beta1 = 1 }, "beta1 is 1, want a number from 0 to below 1"},
		{func(o *Options) { o.Beta1 = -0.1 }, "beta1 is -0.1"},
		{func(o *Options) { o.Beta2 = math.NaN() }, "beta2 is NaN"},
		{func(o *Options) { o.Eps = -1e-8 }, "eps is -1e-08"},
		{func(o *Options) { o.WeightDecay = -1 }, "weight decay is -1"},
		{func(o *Options) { o.LR = 1e39 }, "learning rate is 1e+39"},
		{func(o *Options) { o.LR = 1e-46 }, "learning rate is 1e-46"},
		{func(o *Options) { o.Eps = 1e-46 }, "eps is 1e-46, want a number from 0 that float32 does not round to 0 or infinity"},
		{func(o *Options) { o.Beta1 = 1e-46 }, "beta1 is 1e-46"},
		{func(o *Options) { o.Beta2 = 0.99999999 }, "beta2 is 0.99999999, want a number from 0 to below 1 that float32 does not round to 0 or 1"},
	} {
		o := usual
		c.change(&o)
		for _, o.Kind = range []string{KindAdam, KindAdamW} {
			if _, err := New(processor, nil, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: error %v, want one with %q", o, err, c.want)
			}
		}
	}
}

// TestZeroGradients checks that a gradient of 0 changes a value only through weight decay, after
// any number of steps. With eps 0 the result is 0/0, as in PyTorch.
func TestZeroGradients(t *testing.T) {
	for _, c := range []struct {
		kind       string
		eps, decay float64
		want       float32
	}{
		{KindAdam, 1e-8, 0, 1},
		{KindAdamW, 1e-8, 0, 1},
		{KindAdamW, 1e-8, 0.5, 0.995 * 0.995 * 0.995},
		{KindAdam, 0, 0, float32(math.NaN())},
		{KindAdamW, 0, 0, float32(math.NaN())},
	} {
		p := single(1, 0)
		o := usual
		o.Eps, o.WeightDecay = c.eps, c.decay
		a := build(t, c.kind, []*nn.Param{p}, o)
		for range 3 {
			a.Step([]*nn.Param{p}, 1)
		}
		got := p.Data.Floats()[0]
		if got != got != (c.want != c.want) || math.Abs(float64(got-c.want)) > 1e-6 {
			t.Errorf("%s, eps %v, decay %v: %v, want %v", c.kind, c.eps, c.decay, got, c.want)
		}
	}
}

// TestFirstStepIsTheRate checks that the first step without decay has the size of the learning
// rate and the opposite sign of the gradient, for any gradient larger than eps.
func TestFirstStepIsTheRate(t *testing.T) {
	o := usual
	o.WeightDecay = 0
	for _, grad := range []float32{-1e15, -1, -1e-3, 1e-3, 1, 1e15} {
		for _, kind := range []string{KindAdam, KindAdamW} {
			p := single(0, grad)
			build(t, kind, []*nn.Param{p}, o).Step([]*nn.Param{p}, 1)
			want := -math.Copysign(o.LR, float64(grad))
			if d := math.Abs(float64(p.Data.Floats()[0])-want) / o.LR; d > 1.1e-5 {
				t.Errorf("%s: gradient %v moves by %v, want %v", kind, grad, p.Data.Floats()[0], want)
			}
		}
	}
}

// TestAdamRestoreErrors checks that an invalid state is rejected and does not change the
// optimizer.
func TestAdamRestoreErrors(t *testing.T) {
	state := func(step float32, initialized bool) State {
		return State{KindAdam, initialized, []Tensor{
			{"exp_avg.p", []int{1}, []float32{1}},
			{"exp_avg_sq.p", []int{1}, []float32{1}},
			{"step", nil, []float32{step}},
		}}
	}
	missing := state(1, true)
	missing.Tensors = missing.Tensors[1:]
	unknown := state(1, true)
	unknown.Tensors = append(unknown.Tensors, Tensor{"momentum.p", []int{1}, []float32{1}})
	for _, c := range []struct {
		state State
		want  string
	}{
		{missing, `restore optimizer: no tensor "exp_avg.p"`},
		{unknown, `restore optimizer: unknown tensor "momentum.p"`},
		{state(-1, true), `restore optimizer: "step" is -1, want an integer from 0 to 16777216`},
		{state(1.5, true), `restore optimizer: "step" is 1.5, want an integer`},
		{state(1<<25, true), `restore optimizer: "step" is 3.3554432e+07, want an integer`},
		{state(float32(math.NaN()), true), `restore optimizer: "step" is NaN, want an integer`},
		{state(0, true), `restore optimizer: "step" is 0 in a state with initialized true`},
		{state(3, false), `restore optimizer: "step" is 3 in a state with initialized false`},
	} {
		a := build(t, KindAdam, []*nn.Param{single(1, 1)}, usual)
		if err := a.Restore(c.state); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
		for _, s := range a.State().Tensors {
			if s.Data[0] != 0 {
				t.Errorf("%s: state changed all the same", c.want)
			}
		}
	}
}

// TestStepCountIsLimited checks that the step counter stops at float32's limit, and that training
// continues.
func TestStepCountIsLimited(t *testing.T) {
	p := single(1, 1)
	a := build(t, KindAdam, []*nn.Param{p}, usual)
	err := a.Restore(State{KindAdam, true, []Tensor{
		{"exp_avg.p", []int{1}, []float32{1}}, {"exp_avg_sq.p", []int{1}, []float32{1}}, {"step", nil, []float32{lastStep - 1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.Step([]*nn.Param{p}, 1)
	}
	if got := a.State().Tensors[2].Data[0]; got != lastStep {
		t.Errorf("step is %v, want %v", got, lastStep)
	}
	if got := p.Data.Floats()[0]; math.Abs(float64(got)-(1-3*usual.LR)) > 1e-4 {
		t.Errorf("value %v after three steps of %v from 1", got, usual.LR)
	}
}

// FuzzAdam compares steps with any hyper-parameters with a float64 implementation. Values and
// gradients are positive: if decay cancels a gradient, the difference has no accuracy to compare.
func FuzzAdam(f *testing.F) {
	f.Add(uint64(1), float32(1), 0.9, 0.999, 1e-8, 0.0)
	f.Add(uint64(2), float32(0), 0.0, 0.0, 1e-3, 0.1)
	f.Add(uint64(3), float32(1e-12), 0.99, 0.5, 1e-8, 1.0)
	f.Add(uint64(4), float32(1e9), 0.5, 0.9999, 1.0, 0.01)
	f.Fuzz(func(t *testing.T, seed uint64, scale float32, beta1, beta2, eps, decay float64) {
		if !(scale >= 0 && scale < 1e15 && eps > 1e-10 && eps < 1e3 && decay < 10 && beta1 <= 0.9999 && beta2 <= 0.9999) {
			return // float32 is not accurate enough beyond this
		}
		for _, decoupled := range []bool{false, true} {
			g := random.New(seed)
			p := randomParam(g, "p", 5)
			g.Uniform(0.5, 1, p.Data.Floats())
			o := Options{Kind: KindAdam, LR: 0.01, Beta1: beta1, Beta2: beta2, Eps: eps, WeightDecay: decay}
			if decoupled {
				o.Kind = KindAdamW
			}
			a, err := New(processor, []*nn.Param{p}, o)
			if err != nil {
				return
			}
			var want, m, v [5]float64
			for i, w := range p.Data.Floats() {
				want[i] = float64(w)
			}
			for n := 1.0; n <= 3; n++ {
				g.Uniform(0.5, 1, p.Grad.Floats())
				for i := range p.Grad.Floats() {
					p.Grad.Floats()[i] *= scale
					d := float64(p.Grad.Floats()[i])
					if decoupled {
						want[i] *= 1 - o.LR*decay
					} else {
						d += decay * want[i]
					}
					m[i] = beta1*m[i] + (1-beta1)*d
					v[i] = beta2*v[i] + (1-beta2)*d*d
					want[i] -= o.LR / (1 - math.Pow(beta1, n)) * m[i] / (math.Sqrt(v[i]/(1-math.Pow(beta2, n))) + eps)
				}
				a.Step([]*nn.Param{p}, 1)
			}
			for i, w := range want {
				if d := math.Abs(float64(p.Data.Floats()[i]) - w); !(d <= 1e-6) {
					t.Fatalf("%s: element %d is %v, want %v", a.Kind(), i, p.Data.Floats()[i], w)
				}
			}
		}
	})
}
