package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// GPTOptions is the shape of a GPT-2 model.
type GPTOptions struct {
	Vocabulary int     // number of tokens in the vocabulary
	Context    int     // maximum sequence length in tokens
	Layers     int     // number of blocks
	Heads      int     // attention heads per block
	Width      int     // hidden size, divisible by Heads
	Dropout    float64 // of embeddings, attention weights, and each block's two outputs
}

// GPT is GPT-2 (Radford et al. 2019) with the parameters of Hugging Face's GPT2LMHeadModel. The
// head shares its weight with the token embedding.
type GPT struct {
	GPTOptions
	embedding *embedding
	blocks    []*block
	last      *layerNorm
	head      head
	params    []*Param
	plan      Plan

	// Activations with width columns: the inputs of each block and of the final layer norm, the
	// output of the final layer norm, and their gradients. Inputs are sums. They and their gradient
	// dx are Float32, as under PyTorch's autocast, so that rounding does not lose small addends.
	inputs      []device.Tensor
	normed      device.Tensor
	dnormed, dx device.Tensor
	workspace   workspace
}

// NewGPT returns a GPT-2.
func NewGPT(o GPTOptions) (*GPT, error) {
	for _, v := range []struct {
		name  string
		value int
	}{{"vocabulary", o.Vocabulary}, {"context", o.Context}, {"number of layers", o.Layers}, {"number of heads", o.Heads}, {"width", o.Width}} {
		if v.value < 1 || v.value > 1<<24 {
			return nil, fmt.Errorf("the %s is %d, want 1 to %d", v.name, v.value, 1<<24)
		}
	}
	if o.Width%o.Heads != 0 {
		return nil, fmt.Errorf("a width of %d cannot be divided among %d heads", o.Width, o.Heads)
	}
	if n := o.NumParams(); n > maxParams {
		return nil, fmt.Errorf("%.3g parameters, more than %d", n, maxParams)
	}
	if n := o.Width * max(o.Vocabulary, o.Context, 4*o.Width); n > maxTensor {
		return nil, fmt.Errorf("a matrix of %.3g weights, more than %d", float64(n), maxTensor)
	}
	if err := checkDropout(o.Dropout); err != nil {
		return nil, err
	}
	m := &GPT{GPTOptions: o, embedding: newEmbedding(o)}
	m.params = slices.Clone(m.embedding.params)
	for i := range o.Layers {
		b := newBlock(fmt.Sprintf("h.%d.", i), o, uint64(1+sitesPerBlock*i))
		m.blocks = append(m.blocks, b)
		markHidden(b.params())
		m.params = append(m.params, b.params()...)
	}
	m.last = newLayerNorm("ln_f.", o.Width)
	m.params = setIndices(append(m.params, m.last.Params()...))
	m.head.weight, m.head.params = m.embedding.tokens, m.embedding.params[:1]
	return m, nil
}

// NumParams returns the number of parameters of such a model.
func (o GPTOptions) NumParams() float64 {
	w := float64(o.Width)
	return w*float64(o.Vocabulary+o.Context) + float64(o.Layers)*(12*w*w+13*w) + 2*w
}

// Params returns the parameters with Hugging Face's names, the embeddings first.
func (m *GPT) Params() []*Param { return m.params }

// Init initializes the model like Hugging Face's GPT2PreTrainedModel._init_weights: normal with
// standard deviation 0.02. For output projections, the deviation is divided by the square root of
// the number of residual sums.
func (m *GPT) Init(g *random.Generator, memory device.Memory) {
	const deviation = 0.02
	m.embedding.init(g, memory, deviation)
	for _, b := range m.blocks {
		b.init(g, memory, deviation, deviation/math.Sqrt(2*float64(m.Layers)))
	}
	m.last.Init(g, memory)
}

// initNormal initializes the weight with normal values and the bias with zeros.
func (l *linear) initNormal(g *random.Generator, m device.Memory, deviation float64) {
	device.Fill(m, l.weight.Data, func(v []float32) { g.Normal(0, deviation, v) })
	m.Zero(l.bias.Data)
}

// Plan allocates memory for p.Batch sequences of p.Length tokens.
func (m *GPT) Plan(p Plan) {
	if p.Batch < 1 {
		panic(fmt.Sprintf("nn: plan for batches of %d samples", p.Batch))
	}
	if p.Length == 0 {
		p.Length = m.Context
	}
	if p.Length < 1 || p.Length > m.Context {
		panic(fmt.Sprintf("nn: plan for sequences of %d tokens, the context is %d", p.Length, m.Context))
	}
	p.rows = p.Batch * p.Length
	m.plan = p
	m.embedding.device = p.Device
	op := p.Device.NewAttention(device.AttentionShape{Heads: m.Heads, HeadSize: m.Width / m.Heads, MaxLength: p.Length, Precision: p.Precision})
	row := func() device.Tensor { return p.Device.Alloc(device.Float32, p.rows*m.Width) }
	m.inputs = []device.Tensor{row()}
	for _, b := range m.blocks {
		b.plan(p, op)
		m.inputs = append(m.inputs, row())
	}
	m.last.Plan(p)
	m.head.Plan(p)
	m.normed, m.dnormed, m.dx = p.alloc(p.rows*m.Width), p.alloc(p.rows*m.Width), row()
	m.workspace.plan(p, m.Width)
}

// Forward returns the mean loss of predicting each token's label.
func (m *GPT) Forward(b Batch, pass Pass) Outcome {
	m.plan.checkBatch(b, pass)
	s := m.sequences(b)
	narrow := func(t device.Tensor) device.Matrix { return device.Rows(t, s.rows(), m.Width) }
	x := narrow(m.inputs[0])
	m.embedding.forward(x, b.Tokens, s, 0, pass)
	if pass.Train && m.Dropout > 0 {
		m.plan.Device.Dropout(x.Data, x.Data, m.embeddingDropout(s, pass))
	}
	m.blocks[0].ln1.forward(narrow(m.blocks[0].normed1), x, pass)
	for i, block := range m.blocks {
		next, normed := m.last, narrow(m.normed)
		if i+1 < len(m.blocks) {
			next, normed = m.blocks[i+1].ln1, narrow(m.blocks[i+1].normed1)
		}
		y := narrow(m.inputs[i+1])
		block.forward(y, x, narrow(m.normed), next, normed, s, pass)
		x = y
	}
	return m.head.forward(narrow(m.normed), narrow(m.dnormed), b.Labels, pass)
}

// Losses returns the losses of the rows of the last Forward.
func (m *GPT) Losses() (rows device.Tensor, parts int) { return m.head.tally.lossRows() }

// Backward runs from the last block to the embeddings.
func (m *GPT) Backward(b Batch, pass Pass, ready func(param int)) {
	markReady := func(p *Param) {
		if ready != nil {
			ready(p.index)
		}
	}
	s := m.sequences(b)
	narrow := func(t device.Tensor) device.Matrix { return device.Rows(t, s.rows(), m.Width) }
	d, x := narrow(m.dx), narrow(m.inputs[len(m.blocks)])
	last := len(m.blocks) - 1
	m.last.backward(d, m.blocks[last].branchCopy(&m.workspace, s.rows(), pass), narrow(m.dnormed), x, false, pass, markReady)
	for i := last; i >= 0; i-- {
		copied := device.Tensor{}
		if i > 0 {
			copied = m.blocks[i-1].branchCopy(&m.workspace, s.rows(), pass)
		}
		m.blocks[i].backward(d, copied, narrow(m.inputs[i]), s, &m.workspace, pass, markReady)
	}
	if pass.Train && m.Dropout > 0 {
		m.plan.Device.Dropout(d.Data, d.Data, m.embeddingDropout(s, pass))
	}
	m.embedding.backward(d, b.Tokens, s, pass, markReady)
}

func (m *GPT) embeddingDropout(s sequences, pass Pass) device.Dropout {
	return pass.dropout(float32(m.Dropout), 0, s.length*m.Width)
}

// sequences returns the number and the length of the sequences.
func (m *GPT) sequences(b Batch) sequences {
	s := sequences{b.Samples, b.Tokens.Len() / b.Samples}
	if s.rows() != b.Tokens.Len() || s.length < 1 || s.length > m.plan.Length || s.rows() != b.Labels.Len() {
		panic(fmt.Sprintf("nn: %d tokens and %d labels for %d sequences of at most %d", b.Tokens.Len(), b.Labels.Len(), b.Samples, m.plan.Length))
	}
	return s
}
