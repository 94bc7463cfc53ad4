package nn

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Sequential is PyTorch's nn.Sequential of layers, with F.cross_entropy for labels or F.mse_loss
// for targets. The last layer must not need its outputs for its gradients.
type Sequential struct {
	in     int
	layers []Layer
	owned  [][]*Param // by layer
	params []*Param   // of all layers
	plan   Plan
	tally  tally
	// memory[i] holds the outputs of layer i. The two grads alternately hold the gradients of the
	// inputs of layers.
	memory []device.Tensor
	grads  [2]device.Tensor
	// values[i] holds the rows of the last batch at the input of layer i.
	values []device.Matrix
}

func newSequential(in int, layers []Layer) *Sequential {
	m := &Sequential{in: in, layers: layers}
	for i, l := range layers {
		if i+1 < len(layers) {
			markHidden(l.Params())
		}
		m.owned = append(m.owned, l.Params())
		m.params = append(m.params, l.Params()...)
	}
	setIndices(m.params)
	return m
}

// Params returns the parameters from the first layer to the last, a weight before its bias.
func (m *Sequential) Params() []*Param { return m.params }

// Init initializes the parameters bit-identically to the PyTorch module.
func (m *Sequential) Init(g *random.Generator, memory device.Memory) {
	for _, l := range m.layers {
		l.Init(g, memory)
	}
}

// Plan allocates memory for the outputs of each layer that does not overwrite its inputs, and two
// buffers for gradients.
func (m *Sequential) Plan(p Plan) {
	if p.Batch < 1 {
		panic(fmt.Sprintf("nn: plan for batches of %d samples", p.Batch))
	}
	p.rows = p.Batch
	m.plan = p
	m.memory, m.values = nil, make([]device.Matrix, len(m.layers)+1)
	widest := 0
	for i, l := range m.layers {
		l.Plan(p)
		if l.InPlace() && i > 0 {
			m.memory = append(m.memory, m.memory[i-1])
		} else {
			m.memory = append(m.memory, p.Device.Alloc(device.Float32, p.Batch*l.Width()))
		}
		if i < len(m.layers)-1 {
			widest = max(widest, l.Width())
		}
	}
	if p.Train {
		for i := range m.grads {
			m.grads[i] = p.Device.Alloc(device.Float32, p.Batch*widest)
		}
	}
	m.tally.plan(p.Device, p.Batch)
}

// outputs returns the outputs of the last Forward, or, after a training Forward, their gradient.
func (m *Sequential) outputs() device.Matrix { return m.values[len(m.layers)] }

// Forward computes the outputs and their loss.
func (m *Sequential) Forward(b Batch, pass Pass) Outcome {
	m.plan.checkBatch(b, pass)
	m.values[0] = device.Rows(b.X, b.Samples, m.in)
	for i, l := range m.layers {
		m.values[i+1] = device.Rows(m.memory[i], b.Samples, l.Width())
		l.Forward(m.values[i+1], m.values[i], pass)
	}
	out := m.outputs()
	scale := float32(0)
	if b.Labels.Len() > 0 {
		if pass.Train {
			scale = pass.Weight / float32(b.Samples)
		}
		correct := m.tally.classify(0, out, b.Labels, scale)
		return Outcome{m.tally.loss(b.Samples, b.Samples, pass), b.Samples, correct}
	}
	if pass.Train {
		scale = pass.Weight / float32(b.Samples*out.Cols)
	}
	m.plan.Device.SquaredError(m.tally.losses.Slice(0, b.Samples), out, b.Targets, scale)
	return Outcome{Loss: m.tally.loss(b.Samples, b.Samples*out.Cols, pass), Count: b.Samples}
}

// Losses returns the losses of the rows of the last Forward.
func (m *Sequential) Losses() (rows device.Tensor, parts int) { return m.tally.lossRows() }

// Backward runs from the last layer to the first.
func (m *Sequential) Backward(_ Batch, pass Pass, ready func(param int)) {
	dy := m.outputs()
	turn := 0
	for i := len(m.layers) - 1; i >= 0; i-- {
		l, x, y := m.layers[i], m.values[i], m.values[i+1]
		params := m.owned[i]
		for p := len(params) - 1; p >= 0; p-- {
			l.Gradient(p, dy, x, pass)
			if ready != nil {
				ready(params[p].index)
			}
		}
		if i == 0 {
			return
		}
		dx := dy
		if !l.InPlace() {
			dx = device.Rows(m.grads[turn], x.Rows, x.Cols)
			turn = 1 - turn
		}
		l.Backward(dx, dy, x, y, pass)
		dy = dx
	}
}
