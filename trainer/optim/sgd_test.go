package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// randomParam returns a parameter with n random elements from [-1, 1).
func randomParam(g *random.Generator, name string, n int) *nn.Param {
	p := &nn.Param{Name: name, Shape: []int{n}, Data: device.Host(make([]float32, n)), Grad: device.Host(make([]float32, n))}
	g.Uniform(-1, 1, p.Data.Floats())
	return p
}

func newSGD(t *testing.T, params []*nn.Param, lr, momentum, decay float64, nesterov bool) Optimizer {
	t.Helper()
	s, err := New(processor, params, Options{Kind: KindSGD, LR: lr, Momentum: momentum, WeightDecay: decay, Nesterov: nesterov})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStepFollowsTorch compares the steps of SGD with PyTorch's.
func TestStepFollowsTorch(t *testing.T) {
	raw, err := os.ReadFile("testdata/sgd_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden []struct {
		LR, Momentum float64
		WeightDecay  float64 `json:"weight_decay"`
		Nesterov     bool
		Values       [][]float32
		Buffer       []float32
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden) != 6 {
		t.Fatalf("%d cases, want 6", len(golden))
	}
	for _, c := range golden {
		t.Run(fmt.Sprintf("momentum %v decay %v nesterov %t", c.Momentum, c.WeightDecay, c.Nesterov), func(t *testing.T) {
			g := random.New(5)
			p := randomParam(g, "p", len(c.Values[0]))
			s := newSGD(t, []*nn.Param{p}, c.LR, c.Momentum, c.WeightDecay, c.Nesterov)
			for step, want := range c.Values {
				g.Uniform(-1, 1, p.Grad.Floats())
				s.Step([]*nn.Param{p}, 1)
				near(t, fmt.Sprintf("step %d", step), p.Data.Floats(), want)
			}
			if state := s.State(); c.Buffer != nil {
				near(t, "buffer", state.Tensors[0].Data, c.Buffer)
			} else if len(state.Tensors) != 0 {
				t.Error("buffers without momentum")
			}
		})
	}
}

// near tolerates PyTorch's different rounding of values around 1.
func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6 {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestRestoredSGDIsBitIdentical checks that SGD with restored momentum continues with
// bit-identical parameters.
func TestRestoredSGDIsBitIdentical(t *testing.T) {
	for _, before := range []int{0, 1, 3} {
		t.Run(fmt.Sprintf("after %d steps", before), func(t *testing.T) {
			g := random.New(1)
			params := []*nn.Param{randomParam(g, "0.weight", 5), randomParam(g, "0.bias", 3)}
			s := newSGD(t, params, 0.1, 0.9, 0.01, true)
			step := func(s Optimizer, params []*nn.Param, seed int) {
				g := random.New(uint64(seed))
				for _, p := range params {
					g.Uniform(-1, 1, p.Grad.Floats())
				}
				s.Step(params, 1)
			}
			for i := range before {
				step(s, params, i)
			}

			var saved State
			var copies []*nn.Param
			state := s.State()
			saved.Initialized = state.Initialized
			for i := len(params) - 1; i >= 0; i-- { // any order is valid
				b := state.Tensors[i]
				saved.Tensors = append(saved.Tensors, Tensor{b.Name, b.Shape, append([]float32(nil), b.Data...)})
			}
			for _, p := range params {
				copies = append(copies, &nn.Param{Name: p.Name, Shape: p.Shape, Data: device.Host(slices.Clone(p.Data.Floats())), Grad: device.Host(make([]float32, p.Len()))})
			}
			if saved.Initialized != (before > 0) || state.Tensors[0].Name != "momentum.0.weight" {
				t.Errorf("state says initialized %t, first tensor %q", saved.Initialized, state.Tensors[0].Name)
			}
			again := newSGD(t, copies, 0.1, 0.9, 0.01, true)
			if err := again.Restore(saved); err != nil {
				t.Fatal(err)
			}
			for i := before; i < before+3; i++ {
				step(s, params, i)
				step(again, copies, i)
			}
			for i, p := range params {
				for k := range p.Data.Floats() {
					if math.Float32bits(p.Data.Floats()[k]) != math.Float32bits(copies[i].Data.Floats()[k]) {
						t.Fatalf("%s[%d] is %v, without the break %v", p.Name, k, copies[i].Data.Floats()[k], p.Data.Floats()[k])
					}
				}
			}
		})
	}
}

// TestRestoreErrors checks that a state whose tensors do not match is rejected and does not change
// the optimizer.
func TestRestoreErrors(t *testing.T) {
	good := func() []Tensor {
		return []Tensor{
			{"momentum.w", []int{2, 2}, []float32{1, 2, 3, 4}},
			{"momentum.b", []int{2}, []float32{5, 6}},
		}
	}
	for _, c := range []struct {
		name, want string
		tensors    []Tensor
	}{
		{"missing", `restore optimizer: no tensor "momentum.b"`, good()[:1]},
		{"twice", `restore optimizer: tensor "momentum.w" is given twice`, append(good(), good()[0])},
		{"unknown", `restore optimizer: unknown tensor "momentum.c"`, append(good(), Tensor{"momentum.c", []int{1}, []float32{1}})},
		{"shape", `restore optimizer: tensor "momentum.w" has shape [4] and 4 elements, want [2 2] and 4`, []Tensor{{"momentum.w", []int{4}, []float32{1, 2, 3, 4}}, good()[1]}},
		{"elements", `restore optimizer: tensor "momentum.b" has shape [2] and 1 elements, want [2] and 2`, []Tensor{good()[0], {"momentum.b", []int{2}, []float32{1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			params := []*nn.Param{
				{Name: "w", Shape: []int{2, 2}, Data: device.Host(make([]float32, 4))},
				{Name: "b", Shape: []int{2}, Data: device.Host(make([]float32, 2))},
			}
			s := newSGD(t, params, 0.1, 0.9, 0, false)
			err := s.Restore(State{KindSGD, true, c.tensors})
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
			state := s.State()
			if state.Initialized || state.Tensors[0].Data[0] != 0 || state.Tensors[1].Data[0] != 0 {
				t.Error("state changed all the same")
			}
		})
	}
	plain := newSGD(t, nil, 0.1, 0, 0, false)
	if err := plain.Restore(State{}); err != nil {
		t.Errorf("restore without momentum: %v", err)
	}
	if err := plain.Restore(State{KindSGD, true, good()}); err == nil {
		t.Error("momentum restored into an optimizer without")
	}
}

// TestNewSGDErrors checks that options outside of their ranges are rejected.
func TestNewSGDErrors(t *testing.T) {
	for _, c := range []struct {
		lr, momentum, decay float64
		nesterov            bool
		want                string
	}{
		{-1, 0, 0, false, "learning rate is -1"},
		{math.NaN(), 0, 0, false, "learning rate is NaN"},
		{1e300, 0, 0, false, "learning rate is 1e+300"},
		{1, -0.1, 0, false, "momentum is -0.1"},
		{1, 0, -0.1, false, "weight decay is -0.1"},
		{1, 0, 0, true, "momentum must be above 0"},
		{1e-46, 0, 0, false, "learning rate is 1e-46"},
		{1, 1e-46, 0, true, "momentum is 1e-46"},
		{1, 0, 1e-46, false, "weight decay is 1e-46"},
	} {
		if _, err := New(processor, nil, Options{Kind: KindSGD, LR: c.lr, Momentum: c.momentum, WeightDecay: c.decay, Nesterov: c.nesterov}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("SGD(%v, %v, %v, %t): error %v, want one with %q", c.lr, c.momentum, c.decay, c.nesterov, err, c.want)
		}
	}
}

// TestStepAllocatesNothing checks that a step of SGD does not allocate memory.
func TestStepAllocatesNothing(t *testing.T) {
	params := []*nn.Param{randomParam(random.New(1), "p", 100)}
	for _, momentum := range []float64{0, 0.9} {
		s := newSGD(t, params, 0.1, momentum, 0.01, momentum != 0)
		if n := testing.AllocsPerRun(10, func() { s.Step(params, 1) }); n != 0 {
			t.Errorf("momentum %v: %v allocations per step", momentum, n)
		}
	}
}
