package nn

import (
	"fmt"
	"strconv"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Activations, as the argument of [NewMLP].
const (
	ReLU = "relu"
	Tanh = "tanh"
)

// maxParams limits a model to what its parameters' offsets in bytes and a
// checkpoint can hold; 2^31 of them take 8 GiB, and as much for the gradients.
const maxParams = 1 << 31

// Model is a sequence of layers. It serves one step at a time.
type Model struct {
	in, out  int
	layers   []Layer
	params   []*Param
	offset   []int // of each layer, its first parameter in params
	maxBatch int
	rows     int // of the last Forward
}

// NewLinear returns the model of PyTorch's nn.Linear(in, out), with parameters
// "weight" and "bias". Its values are zero until Init.
func NewLinear(in, out int) (*Model, error) {
	if err := checkWidths(in, nil, out); err != nil {
		return nil, err
	}
	return newModel(in, out, []Layer{newLinear("", in, out)}), nil
}

// NewMLP returns the model of PyTorch's nn.Sequential of nn.Linear layers with
// an activation, [ReLU] or [Tanh], after each but the last. Parameters have the
// names of its state_dict: "0.weight", "0.bias", "2.weight" and so on. Their
// values are zero until Init.
func NewMLP(in int, hidden []int, out int, activationName string) (*Model, error) {
	if activationName != ReLU && activationName != Tanh {
		return nil, fmt.Errorf("make a model: unknown activation %q, want %q or %q", activationName, ReLU, Tanh)
	}
	if err := checkWidths(in, hidden, out); err != nil {
		return nil, err
	}
	var layers []Layer
	width := in
	for _, h := range hidden {
		layers = append(layers, newLinear(strconv.Itoa(len(layers))+".", width, h))
		if activationName == ReLU {
			layers = append(layers, &relu{activation: activation{width: h}})
		} else {
			layers = append(layers, &tanh{activation: activation{width: h}})
		}
		width = h
	}
	layers = append(layers, newLinear(strconv.Itoa(len(layers))+".", width, out))
	return newModel(in, out, layers), nil
}

// checkWidths checks that a model of these layers can be made.
func checkWidths(in int, hidden []int, out int) error {
	params, width := 0, in
	for i, h := range append(append([]int{in}, hidden...), out) {
		if h < 1 || h > maxParams {
			return fmt.Errorf("make a model: layer %d has width %d, want 1 to %d", i, h, maxParams)
		}
		if i > 0 {
			params += (width + 1) * h
		}
		if params > maxParams {
			return fmt.Errorf("make a model: more than %d parameters", maxParams)
		}
		width = h
	}
	return nil
}

func newModel(in, out int, layers []Layer) *Model {
	m := &Model{in: in, out: out, layers: layers}
	for _, l := range layers {
		m.offset = append(m.offset, len(m.params))
		m.params = append(m.params, l.Params()...)
	}
	return m
}

// Inputs returns the number of inputs per sample.
func (m *Model) Inputs() int { return m.in }

// Outputs returns the number of outputs per sample.
func (m *Model) Outputs() int { return m.out }

// Params returns the parameters in PyTorch's order of registration, from the
// first layer to the last, a weight before its bias.
func (m *Model) Params() []*Param { return m.params }

// Init draws the values that the PyTorch module has when it is made with its
// generator in the state of g, bit for bit.
func (m *Model) Init(g *random.Generator) {
	for _, l := range m.layers {
		l.Init(g)
	}
}

// Plan allocates all that steps on batches of up to maxBatch samples need.
func (m *Model) Plan(maxBatch int) {
	if maxBatch < 1 {
		panic(fmt.Sprintf("nn: plan for batches of %d samples", maxBatch))
	}
	m.maxBatch = maxBatch
	for i, l := range m.layers {
		l.Plan(maxBatch, i > 0)
	}
}

// Forward returns the outputs for the rows of x, which must not change before
// Backward. The result is valid until the next Forward.
func (m *Model) Forward(x Matrix) Matrix {
	if x.Rows > m.maxBatch {
		panic(fmt.Sprintf("nn: batch of %d samples, planned for %d", x.Rows, m.maxBatch))
	}
	m.rows = x.Rows
	for _, l := range m.layers {
		x = l.Forward(x)
	}
	return x
}

// Backward writes the gradient of every parameter, from the gradient dout of
// the loss with respect to what the last Forward returned. As soon as the
// gradient of parameter i is final it calls ready(i), in the order from the last
// parameter to the first, so that its reduction over ranks can begin while the
// rest is computed. A nil ready is not called.
func (m *Model) Backward(dout Matrix, ready func(param int)) {
	if dout.Rows != m.rows {
		panic(fmt.Sprintf("nn: output gradient has %d rows, the last batch %d", dout.Rows, m.rows))
	}
	for i := len(m.layers) - 1; i >= 0; i-- {
		l := m.layers[i]
		for p := len(l.Params()) - 1; p >= 0; p-- {
			l.Gradient(p, dout)
			if ready != nil {
				ready(m.offset[i] + p)
			}
		}
		if i > 0 {
			dout = l.Backward(dout)
		}
	}
}
