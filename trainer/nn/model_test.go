package nn

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// TestInitEqualsTorchLinear compares initial weights with PyTorch's nn.Linear, bit for bit.
func TestInitEqualsTorchLinear(t *testing.T) {
	var file struct {
		LinearInit []struct {
			Seed         uint64
			In, Out      int
			Weight, Bias []float32
		} `json:"linear_init"`
	}
	readGolden(t, "linear_init_golden.json", &file)
	if len(file.LinearInit) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range file.LinearInit {
		m, err := NewLinear(c.In, c.Out)
		if err != nil {
			t.Fatal(err)
		}
		d := cpu.New(1)
		AllocValues(d, m.Params())
		m.Init(random.New(c.Seed), d)
		sameBits(t, "weight", get(d, m.Params()[0].Data), c.Weight)
		sameBits(t, "bias", get(d, m.Params()[1].Data), c.Bias)
	}
}

// TestParamsAreNamedAsInTorch checks the names, shapes, and order of parameters, so that PyTorch
// can load the weights.
func TestParamsAreNamedAsInTorch(t *testing.T) {
	for _, c := range []struct {
		name  string
		make  func() (Model, error)
		names []string
		shape [][]int
	}{
		{"linear", func() (Model, error) { return NewLinear(20, 1) }, []string{"weight", "bias"}, [][]int{{1, 20}, {1}}},
		{"mlp without hidden layers", func() (Model, error) { return NewMLP(7, MLPOptions{Activation: "relu"}, 3) },
			[]string{"0.weight", "0.bias"}, [][]int{{3, 7}, {3}}},
		{"mlp", func() (Model, error) { return NewMLP(7, MLPOptions{[]int{5, 4}, "tanh", 0}, 3) },
			[]string{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"},
			[][]int{{5, 7}, {5}, {4, 5}, {4}, {3, 4}, {3}}},
		{"mlp with dropout", func() (Model, error) { return NewMLP(7, MLPOptions{[]int{5, 4}, "gelu", 0.1}, 3) },
			[]string{"0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias"},
			[][]int{{5, 7}, {5}, {4, 5}, {4}, {3, 4}, {3}}},
		{"cnn", func() (Model, error) {
			return NewCNN(3, 9, 8, CNNOptions{[]int{4, 6}, 5, MLPOptions{[]int{5}, "relu", 0.1}}, 2)
		},
			[]string{"0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias", "10.weight", "10.bias"},
			[][]int{{4, 3, 5, 5}, {4}, {6, 4, 5, 5}, {6}, {5, 24}, {5}, {2, 5}, {2}}},
		{"gpt", func() (Model, error) { return NewGPT(GPTOptions{11, 8, 1, 3, 12, 0}) },
			[]string{"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias",
				"h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias", "h.0.ln_2.weight", "h.0.ln_2.bias", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias",
				"h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"},
			[][]int{{11, 12}, {8, 12}, {12}, {12}, {12, 36}, {36}, {12, 12}, {12}, {12}, {12}, {12, 48}, {48}, {48, 12}, {12}, {12}, {12}}},
	} {
		m, err := c.make()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		total := 0
		for i, p := range m.Params() {
			names = append(names, p.Name)
			total += p.Len()
			if i < len(c.shape) && !slices.Equal(p.Shape, c.shape[i]) {
				t.Errorf("%s: %s has shape %v, want %v", c.name, p.Name, p.Shape, c.shape[i])
			}
		}
		if !slices.Equal(names, c.names) {
			t.Errorf("%s: parameters %v, want %v", c.name, names, c.names)
		}
		if g, ok := m.(*GPT); ok && g.NumParams() != float64(total) {
			t.Errorf("%v parameters, want %d", g.NumParams(), total)
		}
	}
}

// TestNewModelErrors checks the errors for invalid widths, kernels, activations, and dropout.
func TestNewModelErrors(t *testing.T) {
	mlp := func(in int, o MLPOptions, out int) func() (Model, error) {
		return func() (Model, error) { return NewMLP(in, o, out) }
	}
	cnn := func(channels, height, width int, o CNNOptions) func() (Model, error) {
		return func() (Model, error) { return NewCNN(channels, height, width, o, 10) }
	}
	gpt := func(o GPTOptions) func() (Model, error) { return func() (Model, error) { return NewGPT(o) } }
	relu := MLPOptions{Activation: "relu"}
	for _, c := range []struct {
		name, want string
		make       func() (Model, error)
	}{
		{"activation", `unknown activation "Relu", want "relu", "tanh" or "gelu"`, mlp(1, MLPOptions{[]int{2}, "Relu", 0}, 1)},
		{"no inputs", "layer 0 has width 0, want 1 to 2147483648", mlp(0, relu, 1)},
		{"no outputs", "layer 1 has width -1, want 1 to 2147483648", func() (Model, error) { return NewLinear(1, -1) }},
		{"empty hidden layer", "layer 2 has width 0, want 1 to 2147483648", mlp(1, MLPOptions{[]int{3, 0}, "relu", 0}, 1)},
		{"too large", "layer 2 has 16385 x 131072 weights, more than 2147483648", mlp(1<<16, MLPOptions{[]int{1<<14 + 1}, "relu", 0}, 1<<17)},
		{"too many", "more than 1099511627776 parameters", mlp(1<<15, MLPOptions{slices.Repeat([]int{1 << 16, 1 << 15}, 257), "relu", 0}, 1)},
		{"far too large", "layer 1 has 2147483648 x 2147483648 weights, more than 2147483648", func() (Model, error) { return NewLinear(1<<31, 1<<31) }},
		{"dropout of everything", "dropout is 1, want a number from 0 to below 1 in float32", mlp(1, MLPOptions{[]int{2}, "relu", 1}, 1)},
		{"dropout of everything in float32", "dropout is 0.99999999, want a number from 0 to below 1 in float32", mlp(1, MLPOptions{[]int{2}, "relu", 0.99999999}, 1)},
		{"gpt's dropout of everything in float32", "dropout is 0.99999999, want a number from 0 to below 1 in float32", gpt(GPTOptions{1, 1, 1, 1, 1, 0.99999999})},
		{"negative dropout", "dropout is -0.1, want a number from 0 to below 1 in float32", mlp(1, MLPOptions{[]int{2}, "relu", -0.1}, 1)},
		{"no images", "a convolutional network needs images, but these samples are not images", cnn(0, 0, 0, CNNOptions{[]int{2}, 3, relu})},
		{"even kernel", "the kernel is 4 wide, want an odd number", cnn(1, 8, 8, CNNOptions{[]int{2}, 4, relu})},
		{"no kernel", "the kernel is -1 wide, want an odd number", cnn(1, 8, 8, CNNOptions{[]int{2}, -1, relu})},
		{"no convolution", "a convolutional network needs at least one convolution", cnn(1, 8, 8, CNNOptions{nil, 3, relu})},
		{"no channels", "convolution 2 has 0 channels, want 1 to 65536", cnn(1, 8, 8, CNNOptions{[]int{2, 0}, 3, relu})},
		{"large convolution", "convolution 2 has 3.87e+10 weights, more than 2147483648", cnn(1, 8, 8, CNNOptions{[]int{1 << 16, 1 << 16}, 3, relu})},
		{"small images", "images are 1x2 before pooling 3, too small to be halved; use fewer convolutions", cnn(1, 6, 8, CNNOptions{[]int{2, 2, 2}, 3, relu})},
		{"activation of a convolution", `unknown activation "", want "relu", "tanh" or "gelu"`, cnn(1, 8, 8, CNNOptions{Channels: []int{2}, Kernel: 3})},
		{"vocabulary", "the vocabulary is 0, want 1 to 16777216", gpt(GPTOptions{0, 1, 1, 1, 1, 0})},
		{"context", "the context is 16777217, want 1 to 16777216", gpt(GPTOptions{1, 1<<24 + 1, 1, 1, 1, 0})},
		{"layers", "the number of layers is -1, want 1 to 16777216", gpt(GPTOptions{1, 1, -1, 1, 1, 0})},
		{"heads", "the number of heads is 0, want 1 to 16777216", gpt(GPTOptions{1, 1, 1, 0, 1, 0})},
		{"width", "a width of 64 cannot be divided among 3 heads", gpt(GPTOptions{1, 1, 1, 3, 64, 0})},
		{"large gpt", "3.38e+15 parameters, more than 1099511627776", gpt(GPTOptions{1, 1, 1, 1, 1 << 24, 0})},
		{"wide gpt", "a matrix of 2.15e+09 weights, more than 2147483648", gpt(GPTOptions{1, 1, 1, 1, 23171, 0})},
		{"gpt's dropout", "dropout is NaN, want a number from 0 to below 1 in float32", gpt(GPTOptions{1, 1, 1, 1, 1, math.NaN()})},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.make(); err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// TestMisusePanics checks that invalid batches and passes panic with their sizes.
func TestMisusePanics(t *testing.T) {
	mlp, gpt := mlpKind("relu").start(t, cpu.New(1), 0, device.FP32), smallKinds[len(smallKinds)-1].start(t, cpu.New(1), 0, device.FP32)
	train := Pass{Train: true, Weight: 1}
	d := mlp.device
	for _, c := range []struct {
		name, want string
		f          func()
	}{
		{"batch larger than planned", "nn: batch of 6 samples, planned for 5", func() { mlp.model.Forward(Batch{Samples: 6}, train) }},
		{"empty batch", "nn: batch of 0 samples, planned for 5", func() { mlp.model.Forward(Batch{}, train) }},
		{"gpt's empty batch", "nn: batch of 0 samples, planned for 4", func() { gpt.model.Forward(Batch{}, train) }},
		{"no weight", "nn: training with weight 0", func() { mlp.model.Forward(mlp.every(0, 1), Pass{Train: true}) }},
		{"short inputs", "elements 0 to 8 of a tensor of 7", func() {
			mlp.model.Forward(Batch{Samples: 2, X: put(d, fill(7, 1)), Labels: putInts(d, []int32{0, 0})}, train)
		}},
		{"labels", "cpu: take the loss of tensors of 2 and 1 elements", func() {
			mlp.model.Forward(Batch{Samples: 2, X: put(d, fill(8, 1)), Labels: putInts(d, []int32{0})}, train)
		}},
		{"neither labels nor targets", "cpu: take the loss of tensors of 6 and 0 elements", func() {
			mlp.model.Forward(Batch{Samples: 2, X: put(d, fill(8, 1))}, train)
		}},
		{"tokens that do not go around", "nn: 5 tokens and 5 labels for 2 sequences of at most 5", func() {
			five := putInts(d, make([]int32, 5))
			gpt.model.Forward(Batch{Samples: 2, Tokens: five, Labels: five}, train)
		}},
		{"long sequences", "nn: 6 tokens and 6 labels for 1 sequences of at most 5", func() {
			six := putInts(d, make([]int32, 6))
			gpt.model.Forward(Batch{Samples: 1, Tokens: six, Labels: six}, train)
		}},
		{"missing labels", "nn: 5 tokens and 0 labels for 1 sequences of at most 5", func() {
			gpt.model.Forward(Batch{Samples: 1, Tokens: putInts(d, make([]int32, 5))}, train)
		}},
		{"no tokens", "nn: 0 tokens and 0 labels for 1 sequences of at most 5", func() { gpt.model.Forward(Batch{Samples: 1}, train) }},
		{"plan for nothing", "nn: plan for batches of 0 samples", func() { mlp.model.Plan(Plan{Device: d}) }},
		{"gpt's plan for nothing", "nn: plan for batches of -1 samples", func() { gpt.model.Plan(Plan{Device: d, Batch: -1}) }},
		{"training without a plan for it", "nn: training with a model that was not planned for it", func() {
			e := mlpKind("relu").start(t, cpu.New(1), 0, device.FP32)
			e.model.Plan(Plan{Device: e.device, Batch: 5})
			e.step(e.every(0, 1), train)
		}},
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
