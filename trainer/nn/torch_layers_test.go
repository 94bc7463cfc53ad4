package nn

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// layerCase is a case of testdata/torch_layers.py.
type layerCase struct {
	Kind, Name string
	Settings   struct {
		Vocabulary, Context, Width, Heads, Batch, Kernel, Padding int
	}
	Inputs, Params, Grads map[string]golden
	Output, DY            golden
}

// param sets a layer's parameter to the case's values.
func (c layerCase) param(d device.Device, name string, p *Param) {
	p.Data, p.Grad = put(d, c.Params[name].Values), d.Alloc(device.Float32, p.Len())
}

// TestLayersEqualTorch compares outputs and gradients of single layers with PyTorch's.
func TestLayersEqualTorch(t *testing.T) {
	var file struct{ Cases []layerCase }
	readGolden(t, "layers_golden.json", &file)
	if len(file.Cases) < 17 {
		t.Fatalf("%d cases", len(file.Cases))
	}
	for _, c := range file.Cases {
		t.Run(c.Kind+" "+c.Name, func(t *testing.T) {
			d := cpu.New(1)
			got := runLayerCase(t, d, c)
			// Both sides round. For the sums here, the difference is about this large.
			const most = 2e-6
			checkClose(t, "output", got["output"], c.Output.Values, most)
			for name, g := range c.Grads {
				checkClose(t, "gradient of "+name, got[name], g.Values, most)
			}
		})
	}
}

// runLayerCase returns the output and, by name, the gradients.
func runLayerCase(t *testing.T, d device.Device, c layerCase) map[string][]float32 {
	x := c.Inputs["x"]
	rows, cols := 1, len(x.Values)
	if len(x.Shape) > 1 {
		rows, cols = x.Shape[0], len(x.Values)/x.Shape[0]
	}
	in, dx := device.Rows(put(d, x.Values), rows, cols), device.Rows(d.Alloc(device.Float32, rows*cols), rows, cols)
	outCols := len(c.Output.Values) / rows
	y, dy := device.Rows(d.Alloc(device.Float32, len(c.Output.Values)), rows, outCols), device.Rows(put(d, c.DY.Values), rows, outCols)
	pass, plan := Pass{Train: true, Weight: 1}, Plan{Device: d, Batch: rows, Train: true, rows: rows}
	run := func(l Layer) {
		l.Plan(plan)
		l.Forward(y, in, pass)
		for i := range l.Params() {
			l.Gradient(i, dy, in, pass)
		}
		l.Backward(dx, dy, in, y, pass)
	}
	s := c.Settings
	switch c.Kind {
	case "layer_norm":
		l := newLayerNorm("", cols)
		c.param(d, "weight", l.weight)
		c.param(d, "bias", l.bias)
		l.Plan(plan)
		l.forward(y, in, Pass{})
		l.backward(dx, device.Tensor{}, dy, in, false, pass, ignore)
		return map[string][]float32{"output": get(d, y.Data), "x": get(d, dx.Data), "weight": get(d, l.weight.Grad), "bias": get(d, l.bias.Grad)}
	case "gelu":
		run(&activation{width: cols, f: device.GELU})
	case "max_pool2d":
		run(&maxPool{shape: device.PoolShape{Channels: x.Shape[1], Height: x.Shape[2], Width: x.Shape[3], Size: s.Kernel}})
	case "conv2d":
		l := newConvolution("", device.ConvolutionShape{In: x.Shape[1], Out: c.Output.Shape[1], Height: x.Shape[2], Width: x.Shape[3], Kernel: s.Kernel, Padding: s.Padding})
		c.param(d, "weight", l.weight)
		c.param(d, "bias", l.bias)
		run(l)
		return map[string][]float32{"output": get(d, y.Data), "x": get(d, dx.Data), "weight": get(d, l.weight.Grad), "bias": get(d, l.bias.Grad)}
	case "embedding":
		return runEmbeddingCase(d, c)
	case "attention":
		return runAttentionCase(d, c)
	case "cross_entropy":
		return runCrossEntropyCase(d, c)
	default:
		t.Fatalf("unknown kind %q", c.Kind)
	}
	return map[string][]float32{"output": get(d, y.Data), "x": get(d, dx.Data)}
}

func runEmbeddingCase(d device.Device, c layerCase) map[string][]float32 {
	tokens := c.Inputs["tokens"]
	o, s := GPTOptions{Vocabulary: c.Settings.Vocabulary, Context: c.Settings.Context, Width: c.Settings.Width}, sequences{tokens.Shape[0], tokens.Shape[1]}
	l := newEmbedding(o)
	l.device = d
	c.param(d, "wte", l.tokens)
	c.param(d, "wpe", l.positions)
	y, ids := device.Rows(d.Alloc(device.Float32, s.rows()*o.Width), s.rows(), o.Width), putInts(d, tokens.ints())
	l.forward(y, ids, s, 0, Pass{})
	l.backward(device.Rows(put(d, c.DY.Values), s.rows(), o.Width), ids, s, Pass{Train: true, Weight: 1}, ignore)
	return map[string][]float32{"output": get(d, y.Data), "wte": get(d, l.tokens.Grad), "wpe": get(d, l.positions.Grad)}
}

// runAttentionCase computes the heads only, without projections.
func runAttentionCase(d device.Device, c layerCase) map[string][]float32 {
	o, s := GPTOptions{Heads: c.Settings.Heads, Width: c.Settings.Width}, sequences{c.Settings.Batch, c.Settings.Context}
	l := newSelfAttention("", o, 0)
	l.packed = put(d, c.Inputs["qkv"].Values)
	op := d.NewAttention(device.AttentionShape{Heads: o.Heads, HeadSize: o.Width / o.Heads, MaxLength: s.length})
	y, logSum := device.Rows(d.Alloc(device.Float32, s.rows()*o.Width), s.rows(), o.Width), d.Alloc(device.Float32, s.rows()*o.Heads)
	in := l.input(s, Pass{Train: true, Weight: 1})
	op.Forward(y, logSum, in)
	dqkv := d.Alloc(device.Float32, s.rows()*3*o.Width)
	dq, dk, dv := l.split(dqkv, s.rows())
	op.Backward(dq, dk, dv, device.Rows(put(d, c.DY.Values), s.rows(), o.Width), y, logSum, in)
	return map[string][]float32{"output": get(d, y.Data), "qkv": get(d, dqkv)}
}

func runCrossEntropyCase(d device.Device, c layerCase) map[string][]float32 {
	logits, labels := c.Inputs["logits"], c.Inputs["targets"].ints()
	var l tally
	l.plan(d, len(labels))
	x := put(d, logits.Values)
	l.classify(0, device.Rows(x, len(labels), logits.Shape[1]), putInts(d, labels), 1/float32(len(labels)))
	return map[string][]float32{"output": {float32(l.loss(len(labels), len(labels), Pass{}))}, "logits": get(d, x)}
}
