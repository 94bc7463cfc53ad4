package nn

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

func newTestMLP(t *testing.T, in int, hidden []int, out int, activationName string) *Model {
	t.Helper()
	m, err := NewMLP(in, hidden, out, activationName)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestInitEqualsTorchLinear(t *testing.T) {
	raw, err := os.ReadFile("testdata/linear_init_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		LinearInit []struct {
			Seed         uint64
			In, Out      int
			Weight, Bias []float32
		} `json:"linear_init"`
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.LinearInit) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range golden.LinearInit {
		m, err := NewLinear(c.In, c.Out)
		if err != nil {
			t.Fatal(err)
		}
		m.Init(random.New(c.Seed))
		sameBits(t, "weight", m.Params()[0].Data, c.Weight)
		sameBits(t, "bias", m.Params()[1].Data, c.Bias)
	}
}

func TestParamsAreNamedAsInTorch(t *testing.T) {
	linear, err := NewLinear(20, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m     *Model
		names []string
		shape [][]int
	}{
		{linear, []string{"weight", "bias"}, [][]int{{1, 20}, {1}}},
		{newTestMLP(t, 7, nil, 3, ReLU), []string{"0.weight", "0.bias"}, [][]int{{3, 7}, {3}}},
		{newTestMLP(t, 7, []int{5, 4}, 3, Tanh),
			[]string{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"},
			[][]int{{5, 7}, {5}, {4, 5}, {4}, {3, 4}, {3}}},
	} {
		var names []string
		for i, p := range c.m.Params() {
			names = append(names, p.Name)
			if !slices.Equal(p.Shape, c.shape[i]) || len(p.Data) != len(p.Grad) {
				t.Errorf("%s has shape %v, %d values, %d in the gradient; want %v", p.Name, p.Shape, len(p.Data), len(p.Grad), c.shape[i])
			}
		}
		if !slices.Equal(names, c.names) {
			t.Errorf("parameters %v, want %v", names, c.names)
		}
	}
	if linear.Inputs() != 20 || linear.Outputs() != 1 {
		t.Errorf("%d inputs, %d outputs", linear.Inputs(), linear.Outputs())
	}
}

func TestNewModelErrors(t *testing.T) {
	for _, c := range []struct {
		name, want string
		make       func() (*Model, error)
	}{
		{"activation", `make a model: unknown activation "gelu", want "relu" or "tanh"`, func() (*Model, error) { return NewMLP(1, nil, 1, "gelu") }},
		{"no inputs", `make a model: layer 0 has width 0, want 1 to 2147483648`, func() (*Model, error) { return NewLinear(0, 1) }},
		{"no outputs", `make a model: layer 1 has width -1, want 1 to 2147483648`, func() (*Model, error) { return NewLinear(1, -1) }},
		{"empty hidden layer", `make a model: layer 2 has width 0, want 1 to 2147483648`, func() (*Model, error) { return NewMLP(1, []int{3, 0}, 1, ReLU) }},
		{"too large", `make a model: more than 2147483648 parameters`, func() (*Model, error) { return NewMLP(1<<16, []int{1 << 14}, 1<<17, ReLU) }},
		{"far too large", `make a model: more than 2147483648 parameters`, func() (*Model, error) { return NewLinear(1<<31, 1<<31) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.make(); err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// When ready(i) is called, parameter i must be final and those before it not yet.
func TestBackwardReportsReadyGradients(t *testing.T) {
	m := newTestMLP(t, 4, []int{6, 3}, 2, ReLU)
	m.Init(random.New(1))
	m.Plan(3)
	dout := matrix(3, 2, 9)
	m.Forward(matrix(3, 4, 8))
	m.Backward(dout, nil)
	var want [][]float32
	for _, p := range m.Params() {
		want = append(want, slices.Clone(p.Grad))
		for i := range p.Grad {
			p.Grad[i] = -5
		}
	}
	var order []int
	m.Backward(dout, func(i int) {
		order = append(order, i)
		for j, p := range m.Params() {
			if j >= i {
				sameBits(t, p.Name, p.Grad, want[j])
			} else if p.Grad[0] != -5 {
				t.Errorf("gradient %d is written before ready(%d)", j, i)
			}
		}
	})
	if !slices.Equal(order, []int{5, 4, 3, 2, 1, 0}) {
		t.Errorf("ready in order %v", order)
	}
}

func TestParamsMayLieInOwnersBuffers(t *testing.T) {
	make2 := func() *Model {
		m := newTestMLP(t, 4, []int{6}, 2, Tanh)
		m.Init(random.New(1))
		m.Plan(3)
		return m
	}
	plain, moved := make2(), make2()
	n := 0
	for _, p := range moved.Params() {
		n += len(p.Data)
	}
	values, grads := make([]float32, n), make([]float32, n)
	at := 0
	for _, p := range moved.Params() {
		end := at + len(p.Data)
		copy(values[at:end], p.Data)
		p.Data, p.Grad = values[at:end:end], grads[at:end:end]
		at = end
	}
	x, dout := matrix(3, 4, 1), matrix(3, 2, 2)
	sameBits(t, "output", moved.Forward(x).Data, plain.Forward(x).Data)
	plain.Backward(dout, nil)
	moved.Backward(dout, nil)
	at = 0
	for _, p := range plain.Params() {
		sameBits(t, p.Name, grads[at:], p.Grad)
		at += len(p.Grad)
	}
}

// A sample's output must not depend on the batch it is in: a run on other
// numbers of ranks evaluates to the same bits.
func TestOutputDoesNotDependOnBatch(t *testing.T) {
	m := newTestMLP(t, 9, []int{7}, 5, ReLU)
	m.Init(random.New(1))
	m.Plan(8)
	x := matrix(8, 9, 1)
	all := slices.Clone(m.Forward(x).Data)
	for i := range 8 {
		one := m.Forward(Matrix{1, 9, x.Data[i*9 : (i+1)*9]})
		sameBits(t, "output", one.Data, all[i*5:(i+1)*5])
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	for _, activationName := range []string{ReLU, Tanh} {
		m := newTestMLP(t, 9, []int{7, 6}, 5, activationName)
		m.Plan(8)
		x, targets, labels := matrix(8, 9, 1), fill(40, 2), make([]int32, 8)
		dout := Matrix{8, 5, make([]float32, 40)}
		last := 0
		ready := func(i int) { last = i }
		allocs := testing.AllocsPerRun(10, func() {
			out := m.Forward(x)
			CrossEntropy(out, labels, dout)
			Correct(out, labels)
			m.Backward(dout, ready)
			MSE(m.Forward(x), targets, dout)
			m.Backward(dout, ready)
		})
		if allocs != 0 || last != 0 {
			t.Errorf("%s: %v allocations per step", activationName, allocs)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	m := newTestMLP(t, 4, []int{6}, 2, ReLU)
	m.Plan(3)
	m.Forward(matrix(3, 4, 1))
	for _, c := range []struct {
		name, want string
		f          func()
	}{
		{"batch larger than planned", "nn: batch of 4 samples, planned for 3", func() { m.Forward(matrix(4, 4, 1)) }},
		{"empty batch", "nn: input of a linear layer is 0x4 with 0 elements, want 4 columns", func() { m.Forward(Matrix{0, 4, nil}) }},
		{"other width", "nn: input of a linear layer is 3x5 with 15 elements, want 4 columns", func() { m.Forward(matrix(3, 5, 1)) }},
		{"short data", "nn: input of a linear layer is 3x4 with 11 elements, want 4 columns", func() { m.Forward(Matrix{3, 4, make([]float32, 11)}) }},
		{"gradient of other width", "nn: output gradient of a linear layer is 3x3 with 9 elements, want 2 columns", func() { m.Backward(matrix(3, 3, 1), nil) }},
		{"gradient of other batch", "nn: output gradient has 2 rows, the last batch 3", func() { m.Backward(matrix(2, 2, 1), nil) }},
		{"plan for nothing", "nn: plan for batches of 0 samples", func() { m.Plan(0) }},
		{"labels", "nn: 1 labels for 2 rows of logits", func() { CrossEntropy(matrix(2, 3, 1), make([]int32, 1), Matrix{}) }},
		{"targets", "nn: 5 targets for 6 predictions", func() { MSE(matrix(2, 3, 1), make([]float32, 5), Matrix{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got, ok := recover().(string); !ok || !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want %q", got, c.want)
				}
			}()
			c.f()
		})
	}
}
