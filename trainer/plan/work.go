package plan

import (
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Sample is what a sample of the data is made of.
type Sample struct {
	Inputs  int  // numbers that go in, 0 for tokens
	Tokens  int  // 0 for numbers
	Outputs int  // classes, target values or tokens that there are
	Classes bool // one label and no target values
}

// Batch gets memory for so many samples, all zero.
func (s Sample) Batch(m device.Memory, samples int) nn.Batch {
	b, rows := nn.Batch{Samples: samples}, samples
	if s.Tokens > 0 {
		rows *= s.Tokens
		b.Tokens = m.Alloc(device.Int32, rows)
	} else {
		b.X = m.Alloc(device.Float32, rows*s.Inputs)
	}
	if s.Classes {
		b.Labels = m.Alloc(device.Int32, rows)
	} else {
		b.Targets = m.Alloc(device.Float32, rows*s.Outputs)
	}
	return b
}

// Work is what a micro-batch takes, whatever computes it.
type Work struct {
	// Params is the number of elements of each parameter, in order of registration.
	Params []int
	// Groups are the parameters by kinds of layers, in the order of the first of each.
	Groups []Group
	// Activations is the memory in bytes that the model keeps between and within its
	// passes, Input that of the samples, and Packed what the device takes to round
	// operands of products.
	Activations, Input, Packed int64
	// Forward is the FLOP of the forward pass. Backward are those of the other, in
	// the order in which gradients are ready; they add up to all of it.
	Forward  float64
	Backward []Ready
	// FirstBucket and Bucket are the bytes of gradients that are sent together; 0 for
	// those of package ddp.
	FirstBucket, Bucket int
	// NoSync is [ddp.Options]' NoSync.
	NoSync bool
}

// Ready is a gradient that has become final.
type Ready struct {
	Param int     // its place in Params
	FLOP  float64 // since the one before it
}

// Group is the layers of one kind.
type Group struct {
	Kind   string `json:"kind"`
	Params int    `json:"parameters"` // elements
}

// Count has the model do a step of a batch of so many samples, at least 1, on a device
// that is narrow or not: see [Counter]. The model's parameters have no memory after it.
func Count(m nn.Model, s Sample, batch int, p device.Precision, narrow bool) Work {
	params := m.Params()
	w := Work{Groups: groups(params)}
	for _, q := range params {
		w.Params = append(w.Params, q.Len())
	}
	var weights, input Counter
	activations := Counter{Narrow: narrow}
	nn.Place(&weights, params)
	nn.PlaceGrads(&weights, params)
	m.Plan(nn.Plan{Device: &activations, Batch: batch, Precision: p, Train: true})
	w.Activations = activations.Bytes

	b := s.Batch(&input, batch)
	w.Input = input.Bytes

	pass := nn.Pass{Train: true, Weight: 1, Stride: 1}
	m.Forward(b, pass)
	w.Forward = activations.FLOP
	last := w.Forward
	m.Backward(b, pass, func(param int) {
		w.Backward = append(w.Backward, Ready{param, activations.FLOP - last})
		last = activations.FLOP
	})
	w.Packed = activations.Packed[0] + activations.Packed[1]
	for _, q := range params {
		q.Data, q.Grad = device.Tensor{}, device.Tensor{}
	}
	return w
}

// NumParams is the elements of all parameters.
func (w Work) NumParams() int {
	n := 0
	for _, p := range w.Params {
		n += p
	}
	return n
}

// backward is the FLOP of the backward pass.
func (w Work) backward() float64 {
	sum := 0.0
	for _, r := range w.Backward {
		sum += r.FLOP
	}
	return sum
}

// FLOP is that of both passes.
func (w Work) FLOP() float64 { return w.Forward + w.backward() }

// groups sorts parameters by the kinds of their layers.
func groups(params []*nn.Param) []Group {
	var out []Group
	kinds := map[string]string{} // of layers, by what their parameters' names begin with
	for _, p := range params {
		layer := p.Name[:strings.LastIndexByte(p.Name, '.')+1]
		kind, ok := kinds[layer]
		if !ok {
			// A weight comes before its bias.
			kind = kindOf(p)
			kinds[layer] = kind
		}
		i := slices.IndexFunc(out, func(g Group) bool { return g.Kind == kind })
		if i < 0 {
			i = len(out)
			out = append(out, Group{Kind: kind})
		}
		out[i].Params += p.Len()
	}
	return out
}

// kindOf is the kind of the layer that a weight belongs to.
func kindOf(weight *nn.Param) string {
	switch {
	case strings.HasPrefix(weight.Name, "wte."), strings.HasPrefix(weight.Name, "wpe."):
		return "embedding"
	case strings.Contains(weight.Name, ".attn."):
		return "attention"
	case strings.Contains(weight.Name, ".mlp."):
		return "mlp"
	case len(weight.Shape) == 1:
		return "normalisation"
	case len(weight.Shape) == 4:
		return "convolution"
	}
	return "linear"
}
