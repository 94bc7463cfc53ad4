package nn

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// kind is a model to test, and the samples that it takes.
type kind struct {
	name    string
	make    func(dropout float64) (Model, error)
	samples int // per batch
	inputs  int // per sample, or
	tokens  int // per sample
	classes int // or targets
	targets bool
}

// smallKinds are models that one thread computes and whose gradients can be checked one by one.
var smallKinds = []kind{
	{name: "linear", samples: 5, inputs: 4, classes: 2, targets: true, make: func(float64) (Model, error) { return NewLinear(4, 2) }},
	mlpKind("relu"), mlpKind("tanh"), mlpKind("gelu"),
	{name: "cnn", samples: 4, inputs: 2 * 9 * 6, classes: 5, make: func(dropout float64) (Model, error) {
		return NewCNN(2, 9, 6, CNNOptions{Channels: []int{3, 4}, Kernel: 3, Dense: MLPOptions{Hidden: []int{6}, Activation: "tanh", Dropout: dropout}}, 5)
	}},
	{name: "gpt", samples: 4, tokens: 5, classes: 7, make: func(dropout float64) (Model, error) {
		o := smallGPT
		o.Dropout = dropout
		return NewGPT(o)
	}},
}

func mlpKind(activation string) kind {
	return kind{name: "mlp with " + activation, samples: 5, inputs: 4, classes: 3, make: func(dropout float64) (Model, error) {
		return NewMLP(4, MLPOptions{[]int{6, 5}, activation, dropout}, 3)
	}}
}

// largeKinds are models whose operations all use several threads.
var largeKinds = []kind{
	{name: "mlp", samples: 1100, inputs: 180, classes: 65, make: func(dropout float64) (Model, error) {
		return NewMLP(180, MLPOptions{[]int{130, 75}, "gelu", dropout}, 65)
	}},
	{name: "cnn", samples: 131, inputs: 3 * 32 * 30, classes: 10, make: func(dropout float64) (Model, error) {
		return NewCNN(3, 32, 30, CNNOptions{Channels: []int{5, 9}, Kernel: 3, Dense: MLPOptions{Hidden: []int{601}, Activation: "relu", Dropout: dropout}}, 10)
	}},
	{name: "gpt", samples: 6, tokens: 150, classes: 201, make: func(dropout float64) (Model, error) {
		return NewGPT(GPTOptions{Vocabulary: 201, Context: 150, Layers: 2, Heads: 3, Width: 99, Dropout: dropout})
	}},
}

// example is a model with memory on a device, and samples for it.
type example struct {
	kind
	device device.Device
	model  Model
	x      []float32
	ids    []int32
	labels []int32
	wanted []float32 // targets
}

// start creates an example with the initial weights of seed 1.
func (k kind) start(t testing.TB, d device.Device, dropout float64, p device.Precision) *example {
	t.Helper()
	m, err := k.make(dropout)
	if err != nil {
		t.Fatal(err)
	}
	AllocValues(d, m.Params())
	AllocGrads(d, m.Params())
	m.Init(random.New(1), d)
	m.Plan(Plan{Device: d, Batch: k.samples, Precision: p, Train: true})
	e := &example{kind: k, device: d, model: m, x: fill(k.samples*k.inputs, 2)}
	draw := random.New(3)
	for range k.samples * k.tokens {
		e.ids = append(e.ids, int32(draw.Uint32()%uint32(k.classes)))
	}
	for range k.samples * max(1, k.tokens) {
		e.labels = append(e.labels, int32(draw.Uint32()%uint32(k.classes)))
	}
	if k.targets {
		e.labels, e.wanted = nil, fill(k.samples*k.classes, 4)
	}
	return e
}

// batch returns the samples with the given indices.
func (e *example) batch(samples ...int) Batch {
	b := Batch{Samples: len(samples)}
	if e.tokens > 0 {
		b.Tokens = putInts(e.device, pick(e.ids, e.samples, samples))
	} else {
		b.X = put(e.device, pick(e.x, e.samples, samples))
	}
	if e.targets {
		b.Targets = put(e.device, pick(e.wanted, e.samples, samples))
	} else {
		b.Labels = putInts(e.device, pick(e.labels, e.samples, samples))
	}
	return b
}

// every returns every stride-th sample, starting at first.
func (e *example) every(first, stride int) Batch {
	var samples []int
	for i := first; i < e.samples; i += stride {
		samples = append(samples, i)
	}
	return e.batch(samples...)
}

// pick returns the parts of v with the given indices, of n parts of equal size.
func pick[T any](v []T, n int, numbers []int) (picked []T) {
	each := len(v) / n
	for _, i := range numbers {
		picked = append(picked, v[i*each:(i+1)*each]...)
	}
	return picked
}

// step runs a forward and a backward pass.
func (e *example) step(b Batch, pass Pass) Outcome {
	out := e.model.Forward(b, pass)
	e.model.Backward(b, pass, nil)
	return out
}

// grads returns a copy of all gradients.
func (e *example) grads() (g [][]float32) {
	for _, p := range e.model.Params() {
		g = append(g, get(e.device, p.Grad))
	}
	return g
}
