package optim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// processor is the device of the tests.
var processor = cpu.New(1)

var kinds = []string{KindSGD, KindAdam, KindAdamW, KindLion, KindMuon}

// usual are options that suit every kind.
var usual = Options{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}

// build creates an optimizer of any kind; SGD has a momentum of 0.9.
func build(t testing.TB, kind string, params []*nn.Param, o Options) Optimizer {
	t.Helper()
	o.Momentum = 0.9
	return buildWith(t, kind, params, o)
}

// buildWith creates an optimizer of any kind.
func buildWith(t testing.TB, kind string, params []*nn.Param, o Options) Optimizer {
	t.Helper()
	o.Kind = kind
	out, err := New(processor, params, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestUnsupportedRules checks that New rejects unknown kinds and devices that lack a rule.
func TestUnsupportedRules(t *testing.T) {
	o := usual
	o.Kind = "adagrad"
	if _, err := New(processor, nil, o); err == nil || err.Error() != `unknown kind of optimizer "adagrad"` {
		t.Errorf("error %v", err)
	}
	for _, kind := range kinds {
		o.Kind = kind
		if _, err := New(withoutRules{processor}, nil, o); err == nil || !strings.Contains(err.Error(), "does not support the update rule") {
			t.Errorf("%s: error %v", kind, err)
		}
	}
}

// withoutRules is a device without update rules.
type withoutRules struct{ *cpu.Device }

func (withoutRules) HasRule(device.Rule) bool { return false }

// cloned returns a copy of a state.
func cloned(s State) State {
	s.Tensors = slices.Clone(s.Tensors)
	for i := range s.Tensors {
		s.Tensors[i].Data = slices.Clone(s.Tensors[i].Data)
	}
	return s
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// TestRestoreIsBitIdentical checks for each optimizer that a run with a restored state continues
// with bit-identical parameters.
func TestRestoreIsBitIdentical(t *testing.T) {
	for _, kind := range kinds {
		for _, before := range []int{0, 1, 25} {
			t.Run(fmt.Sprintf("%s after %d steps", kind, before), func(t *testing.T) {
				schedule, err := Cosine(0.01, 0.001, 50)
				if err != nil {
					t.Fatal(err)
				}
				if schedule, err = Warmup(0.1, 10, schedule); err != nil {
					t.Fatal(err)
				}
				advance := func(o Optimizer, params []*nn.Param, step int) {
					g := random.New(uint64(step))
					for _, p := range params {
						g.Uniform(-1, 1, p.Grad.Floats())
					}
					scale := ClipScale(GradNorm(processor, params), 1)
					o.SetRate(schedule(int64(step)))
					o.Step(params, scale)
				}
				g := random.New(1)
				params := []*nn.Param{randomParam(g, "0.weight", 15), randomParam(g, "0.bias", 3)}
				params[0].Shape, params[0].Hidden = []int{5, 3}, true
				o := build(t, kind, params, usual)
				for step := range before {
					advance(o, params, step)
				}
				saved := cloned(o.State())
				if saved.Kind != kind || saved.Initialized != (before > 0) {
					t.Errorf("state of kind %q, initialized %t", saved.Kind, saved.Initialized)
				}
				slices.Reverse(saved.Tensors) // any order is valid
				var copies []*nn.Param
				for _, p := range params {
					copies = append(copies, &nn.Param{Name: p.Name, Shape: p.Shape, Hidden: p.Hidden, Data: device.Host(slices.Clone(p.Data.Floats())), Grad: device.Host(make([]float32, p.Len()))})
				}
				again := build(t, kind, copies, usual)
				if err := again.Restore(saved); err != nil {
					t.Fatal(err)
				}
				for step := before; step < 50; step++ {
					advance(o, params, step)
					advance(again, copies, step)
				}
				for i, p := range params {
					if !sameBits(p.Data.Floats(), copies[i].Data.Floats()) {
						t.Errorf("%s is %v, without the break %v", p.Name, copies[i].Data.Floats(), p.Data.Floats())
					}
				}
				for i, s := range o.State().Tensors {
					if !sameBits(s.Data, again.State().Tensors[i].Data) {
						t.Errorf("state %s differs", s.Name)
					}
				}
			})
		}
	}
}

// TestStatesOfOtherKindsAreRejected checks that an optimizer rejects the state of a different
// kind. A state without a kind is from SGD.
func TestStatesOfOtherKindsAreRejected(t *testing.T) {
	for _, from := range append(kinds, "") {
		for _, to := range kinds {
			params := []*nn.Param{randomParam(random.New(1), "p", 3)}
			state := State{}
			if from != "" {
				state = build(t, from, params, usual).State()
			} else {
				state = build(t, to, params, usual).State()
				state.Kind = ""
			}
			err := build(t, to, params, usual).Restore(state)
			if from == to || from == "" && to == KindSGD {
				if err != nil {
					t.Errorf("%q to %q: %v", from, to, err)
				}
				continue
			}
			want := fmt.Sprintf("restore optimizer: the state is of kind %q, want %q", from, to)
			if err == nil || err.Error() != want {
				t.Errorf("%q to %q: error %v, want %s", from, to, err, want)
			}
		}
	}
}

// TestStepsOfAllKindsAllocateNothing checks for each optimizer that a step with a schedule and
// clipping does not allocate memory.
func TestStepsOfAllKindsAllocateNothing(t *testing.T) {
	g := random.New(1)
	params := []*nn.Param{randomParam(g, "a", 100), randomParam(g, "b", 7)}
	params[0].Shape, params[0].Hidden = []int{10, 10}, true
	for _, p := range params {
		g.Uniform(-1, 1, p.Grad.Floats())
	}
	schedule, err := Cosine(0.01, 0.001, 50)
	if err != nil {
		t.Fatal(err)
	}
	if schedule, err = Warmup(0, 5, schedule); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		o := build(t, kind, params, usual)
		step := int64(0)
		if n := testing.AllocsPerRun(20, func() {
			scale := ClipScale(GradNorm(processor, params), 0.1)
			o.SetRate(schedule(step))
			o.Step(params, scale)
			step++
		}); n != 0 {
			t.Errorf("%s: %v allocations per step", kind, n)
		}
	}
}

// TestStepsOfOtherParametersPanic checks that Step panics if the parameters are not the
// optimizer's.
func TestStepsOfOtherParametersPanic(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			p := randomParam(random.New(1), "p", 3)
			o := build(t, kind, []*nn.Param{p}, usual)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			o.Step([]*nn.Param{p, p}, 1)
		})
	}
}

// BenchmarkRules measures the time per parameter of each optimizer and of the norm.
func BenchmarkRules(b *testing.B) {
	const n = 1 << 20
	g := random.New(1)
	params := []*nn.Param{randomParam(g, "p", n)}
	g.Uniform(-1, 1, params[0].Grad.Floats())
	each := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/param")
		})
	}
	for _, kind := range kinds {
		o := build(b, kind, params, usual)
		each(kind, func() { o.Step(params, 1) })
	}
	each("norm", func() { GradNorm(processor, params) })
}
