package bench

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Model is a network with its batch and its optimizer, whose steps can be measured.
type Model interface {
	// Name returns one word. Shape returns the sizes with the usual letters.
	Name() string
	Shape() string
	// Steps returns the number of steps that gives a stable median within a few seconds.
	Steps() int
	// flop returns the floating-point operations of a step.
	flop() float64
	// products returns the matmuls of its layers.
	products() []Shape
	// prepare returns a training run before its first step, with the samples of a rank. Its
	// parameters are initialized, in memory from alloc. It has no optimizer yet.
	prepare(d device.Device, p device.Precision, rank int, alloc allocator) (*training, error)
	// sized returns the model with a different batch size and sequence length, unless they are 0.
	sized(batch, length int) (Model, error)
}

// Models returns the reference models: an MLP for images of 784 pixels, a small character-level
// GPT, and GPT-2 with 124 million parameters.
func Models() []Model {
	return []Model{
		perceptron{name: "mlp", in: 784, hidden: []int{512, 512}, out: 10, batch: 128, steps: 300},
		transformer{
			name: "gpt", options: nn.GPTOptions{Vocabulary: 65, Context: 128, Layers: 4, Heads: 4, Width: 256}, batch: 8, length: 128, steps: 30,
			adamw: optim.Options{Kind: optim.KindAdamW, LR: 3e-4, Beta1: .9, Beta2: .95, Eps: 1e-8, WeightDecay: .1}, clip: 1,
		},
		transformer{
			name: "gpt2", options: nn.GPTOptions{Vocabulary: 50304, Context: 1024, Layers: 12, Heads: 12, Width: 768}, batch: 4, length: 64, steps: 5,
			adamw: optim.Options{Kind: optim.KindAdamW, LR: 3e-4, Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .01},
		},
	}
}

// Resize returns m with a different batch size in samples and, for sequences, a different length in
// tokens. 0 keeps the current value.
func Resize(m Model, batch, length int) (Model, error) { return m.sized(batch, length) }

// allocator allocates parameters on a device.
type allocator func(device.Device, []*nn.Param)

// allocParams allocates the parameters of a single rank.
func allocParams(d device.Device, params []*nn.Param) { nn.AllocValues(d, params) }

// training is a model with all the state for its steps.
type training struct {
	device device.Device
	model  nn.Model
	batch  nn.Batch
	// newOptimizer creates the optimizer, which is then stored in optimizer.
	newOptimizer func([]*nn.Param) (optim.Optimizer, error)
	optimizer    optim.Optimizer
	clip         float64 // maximum gradient norm, or 0 for no clipping
	unit         string  // what the rate counts, "samples" or "tokens"
	units        int     // number of these per step
}

// params returns the number of parameters.
func (t *training) params() int {
	n := 0
	for _, p := range t.model.Params() {
		n += p.Len()
	}
	return n
}

// seed is the seed for weights, samples, and labels, which are generated in this order. Samples and
// labels of ranks above 0 have separate generators.
const seed = 0

// start allocates and initializes a model for batches as described by p. It returns the generator
// for a rank's samples.
func start(d device.Device, m nn.Model, p nn.Plan, rank int, alloc allocator) *random.Generator {
	alloc(d, m.Params())
	p.Device, p.Train = d, true
	m.Plan(p)
	g := random.New(seed)
	m.Init(g, d)
	if rank > 0 {
		return random.New(seed + uint64(rank))
	}
	return g
}

// classes returns n random classes or tokens, like torch.randint.
func classes(g *random.Generator, d device.Device, n, below int) device.Tensor {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(g.Uint32() % uint32(below))
	}
	t := d.Alloc(device.Int32, n)
	d.WriteInts(t, v)
	return t
}

// perceptron is an MLP with ReLU, trained with SGD at a learning rate of 0.01 and a momentum of 0.9
// on normally distributed inputs.
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
		return nil, fmt.Errorf("%s has no sequence length: its samples are not sequences", m.name)
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

// flop returns 2 FLOPs per sample and weight for each of three matmuls: the outputs, the gradient
// of the weight, and the gradient of the inputs, which the first layer does not need.
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

func (m perceptron) prepare(d device.Device, p device.Precision, rank int, alloc allocator) (*training, error) {
	model, err := nn.NewMLP(m.in, nn.MLPOptions{Hidden: m.hidden, Activation: "relu"}, m.out)
	if err != nil {
		return nil, err
	}
	g := start(d, model, nn.Plan{Batch: m.batch, Precision: p}, rank, alloc)
	x := d.Alloc(device.Float32, m.batch*m.in)
	device.Fill(d, x, func(v []float32) { g.Normal(0, 1, v) })
	return &training{
		device: d, model: model, unit: "samples", units: m.batch,
		newOptimizer: func(params []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, params, optim.Options{Kind: optim.KindSGD, LR: .01, Momentum: .9})
		},
		batch: nn.Batch{Samples: m.batch, X: x, Labels: classes(g, d, m.batch, m.out)},
	}, nil
}

// transformer is a GPT-2, trained with AdamW on random tokens.
type transformer struct {
	name    string
	options nn.GPTOptions
	batch   int
	length  int // tokens per sequence
	adamw   optim.Options
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

// flop returns 6N + 12*L*C*T per token (Chowdhery et al. 2022, appendix B). N is the number of
// parameters without the position embedding, which is in no matmul. The second term is for
// attention, as if no position were masked.
func (m transformer) flop() float64 {
	o := m.options
	n := o.NumParams() - float64(o.Context*o.Width)
	return float64(m.batch*m.length) * (6*n + 12*float64(o.Layers*o.Width*m.length))
}

func (m transformer) prepare(d device.Device, p device.Precision, rank int, alloc allocator) (*training, error) {
	model, err := nn.NewGPT(m.options)
	if err != nil {
		return nil, err
	}
	g := start(d, model, nn.Plan{Batch: m.batch, Length: m.length, Precision: p}, rank, alloc)
	tokens := m.batch * m.length
	return &training{
		device: d, model: model, clip: m.clip, unit: "tokens", units: tokens,
		newOptimizer: func(params []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, params, m.adamw)
		},
		batch: nn.Batch{
			Samples: m.batch,
			Tokens:  classes(g, d, tokens, m.options.Vocabulary),
			Labels:  classes(g, d, tokens, m.options.Vocabulary),
		},
	}, nil
}
