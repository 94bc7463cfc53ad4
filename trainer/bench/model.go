package bench

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Model is a network with its batch and its optimiser, whose steps can be timed.
type Model interface {
	// Name is one word, and Shape the sizes in the field's usual letters.
	Name() string
	Shape() string
	// Steps is how many of them give a good median within some seconds.
	Steps() int
	// flop counts the products and sums of a step.
	flop() float64
	// products are those of its layers.
	products() []Shape
	// prepare returns a training that has not begun, with the samples of a rank. Its
	// parameters have their values, in the memory that place gives them, and no optimiser.
	prepare(d device.Device, p device.Precision, rank int, place placing) (*training, error)
	// sized is the model with other sizes of its batch, where they are not 0.
	sized(batch, length int) (Model, error)
}

// Models returns the reference models: an MLP for images of 784 pixels, a small GPT
// of characters, and GPT-2 with 124 million parameters.
func Models() []Model {
	return []Model{
		perceptron{name: "mlp", in: 784, hidden: []int{512, 512}, out: 10, batch: 128, steps: 300},
		transformer{
			name: "gpt", options: nn.GPTOptions{Vocabulary: 65, Context: 128, Layers: 4, Heads: 4, Width: 256}, batch: 8, length: 128, steps: 30,
			adamw: optim.AdamOptions{LR: 3e-4, Beta1: .9, Beta2: .95, Eps: 1e-8, WeightDecay: .1}, clip: 1,
		},
		transformer{
			name: "gpt2", options: nn.GPTOptions{Vocabulary: 50304, Context: 1024, Layers: 12, Heads: 12, Width: 768}, batch: 4, length: 64, steps: 5,
			adamw: optim.AdamOptions{LR: 3e-4, Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .01},
		},
	}
}

// Sized is a model with other batches: so many samples, and of sequences so many tokens in
// each. 0 leaves it as it is.
func Sized(m Model, batch, length int) (Model, error) { return m.sized(batch, length) }

// placing gives parameters memory on a device.
type placing func(device.Device, []*nn.Param)

// whole is that of a rank alone.
func whole(d device.Device, params []*nn.Param) { nn.Place(d, params) }

// training is a model with all that its steps need.
type training struct {
	device device.Device
	model  nn.Model
	batch  nn.Batch
	// optimise makes the optimiser of parameters, which then is optimizer's.
	optimise  func([]*nn.Param) (optim.Optimizer, error)
	optimizer optim.Optimizer
	clip      float64 // norm that gradients are clipped to, or 0
	unit      string  // what is counted per second,
	units     int     // and how many of them a step takes
}

// alone gives a training of one rank its gradients and its optimiser.
func (t *training) alone() (err error) {
	nn.PlaceGrads(t.device, t.model.Params())
	t.optimizer, err = t.optimise(t.model.Params())
	return err
}

// step does one step and returns the loss before it.
func (t *training) step() float64 {
	params, pass := t.model.Params(), nn.Pass{Train: true, Weight: 1, Stride: 1}
	out := t.model.Forward(t.batch, pass)
	t.model.Backward(t.batch, pass, nil)
	t.update(params, optim.GradNorm(t.device, params)) // the trainer looks whether it is finite
	return out.Loss
}

// update changes parameters by their gradients, which have that norm.
func (t *training) update(params []*nn.Param, norm float64) {
	scale := float32(1)
	if t.clip > 0 {
		scale = optim.ClipScale(norm, t.clip)
	}
	t.optimizer.Step(params, scale)
}

// params is the number of parameters.
func (t *training) params() int {
	n := 0
	for _, p := range t.model.Params() {
		n += p.Len()
	}
	return n
}

// seed is that of weights, samples and labels, which are drawn in this order. The
// samples and labels of ranks above 0 are drawn from a generator of their own.
const seed = 0

// start gives a model its memory, for batches as p says, and its weights, and returns
// the generator for what a rank draws next.
func start(d device.Device, m nn.Model, p nn.Plan, rank int, place placing) *random.Generator {
	place(d, m.Params())
	p.Device, p.Train = d, true
	m.Plan(p)
	g := random.New(seed)
	m.Init(g, d)
	if rank > 0 {
		return random.New(seed + uint64(rank))
	}
	return g
}

// classes draws n classes or tokens, as torch.randint.
func classes(g *random.Generator, d device.Device, n, below int) device.Tensor {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(g.Uint32() % uint32(below))
	}
	t := d.Alloc(device.Int32, n)
	d.WriteInts(t, v)
	return t
}

// perceptron is an MLP with ReLU, trained by SGD with a rate of 0.01 and a momentum
// of 0.9 on normal inputs.
type perceptron struct {
	name    string
	in, out int
	hidden  []int
	batch   int
	steps   int
}

func (m perceptron) Name() string { return m.name }
func (m perceptron) Steps() int   { return m.steps }

func (m perceptron) sized(batch, length int) (Model, error) {
	if length != 0 {
		return nil, fmt.Errorf("the samples of %s are no sequences, and have no length", m.name)
	}
	if batch != 0 {
		m.batch = batch
	}
	return m, nil
}

func (m perceptron) widths() []int { return append(append([]int{m.in}, m.hidden...), m.out) }

func (m perceptron) Shape() string {
	return fmt.Sprintf("%s B%d", strings.Join(strings.Fields(strings.Trim(fmt.Sprint(m.widths()), "[]")), "-"), m.batch)
}

// flop is 2 for each sample and weight in each of three products: the outputs, the
// weight's gradient, and the input's, which the first layer does not need.
func (m perceptron) flop() float64 {
	total, widths := 0.0, m.widths()
	for i := range len(widths) - 1 {
		products := 3.0
		if i == 0 {
			products = 2
		}
		total += products * 2 * float64(m.batch) * float64(widths[i]) * float64(widths[i+1])
	}
	return total
}

func (m perceptron) prepare(d device.Device, p device.Precision, rank int, place placing) (*training, error) {
	model, err := nn.NewMLP(m.in, nn.MLPOptions{Hidden: m.hidden, Activation: "relu"}, m.out)
	if err != nil {
		return nil, err
	}
	g := start(d, model, nn.Plan{Batch: m.batch, Precision: p}, rank, place)
	x := d.Alloc(device.Float32, m.batch*m.in)
	device.Fill(d, x, func(v []float32) { g.Normal(0, 1, v) })
	return &training{
		device: d, model: model, unit: "samples", units: m.batch,
		optimise: func(params []*nn.Param) (optim.Optimizer, error) {
			return optim.NewSGD(d, params, .01, .9, 0, false)
		},
		batch: nn.Batch{Samples: m.batch, X: x, Labels: classes(g, d, m.batch, m.out)},
	}, nil
}

// transformer is a GPT-2, trained by AdamW on random tokens.
type transformer struct {
	name    string
	options nn.GPTOptions
	batch   int
	length  int // tokens of a sequence
	adamw   optim.AdamOptions
	clip    float64
	steps   int
}

func (m transformer) Name() string { return m.name }
func (m transformer) Steps() int   { return m.steps }

func (m transformer) sized(batch, length int) (Model, error) {
	if length > m.options.Context {
		return nil, fmt.Errorf("a sequence of %s has at most %d tokens", m.name, m.options.Context)
	}
	if batch != 0 {
		m.batch = batch
	}
	if length != 0 {
		m.length = length
	}
	return m, nil
}

func (m transformer) Shape() string {
	o := m.options
	return fmt.Sprintf("L%d C%d H%d V%d T%d B%d", o.Layers, o.Width, o.Heads, o.Vocabulary, m.length, m.batch)
}

// flop is 6N + 12*L*C*T for each token (Chowdhery et al. 2022, appendix B), where N
// are all parameters but the embedding of positions, which is in no product. The
// second part is attention's, as if no position were masked.
func (m transformer) flop() float64 {
	o := m.options
	n := o.NumParams() - float64(o.Context*o.Width)
	return float64(m.batch*m.length) * (6*n + 12*float64(o.Layers*o.Width*m.length))
}

func (m transformer) prepare(d device.Device, p device.Precision, rank int, place placing) (*training, error) {
	model, err := nn.NewGPT(m.options)
	if err != nil {
		return nil, err
	}
	g := start(d, model, nn.Plan{Batch: m.batch, Length: m.length, Precision: p}, rank, place)
	tokens := m.batch * m.length
	return &training{
		device: d, model: model, clip: m.clip, unit: "tokens", units: tokens,
		optimise: func(params []*nn.Param) (optim.Optimizer, error) {
			return optim.NewAdamW(d, params, m.adamw)
		},
		batch: nn.Batch{
			Samples: m.batch,
			Tokens:  classes(g, d, tokens, m.options.Vocabulary),
			Labels:  classes(g, d, tokens, m.options.Vocabulary),
		},
	}, nil
}
