package plan

import (
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Sample describes a sample of the data.
type Sample struct {
	Inputs  int  // number of input values, 0 for tokens
	Tokens  int  // number of tokens, 0 for values
	Outputs int  // number of classes, target values, or tokens in the vocabulary
	Classes bool // one label instead of target values
}

// Batch allocates a batch of zeros.
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

// Work holds the resources of a micro-batch, independent of the machine.
type Work struct {
	// Params is the number of elements of each parameter, in registration order.
	Params []int
	// Groups are the parameters by kind of layer, in the order of the first layer of each kind.
	Groups []Group
	// Activations is the memory in bytes that the model needs between and within its passes. Input
	// is the memory of the samples, and Packed the memory in which the device rounds matmul
	// operands.
	Activations, Input, Packed int64
	// Forward is the number of FLOPs of the forward pass. Backward lists the FLOPs of the backward
	// pass, in the order in which gradients become ready; their sum is the whole pass.
	Forward  float64
	Backward []Ready
	// FirstBucket and Bucket are the bucket sizes in bytes; 0 means package ddp's.
	FirstBucket, Bucket int
	// NoSync is NoSync of [ddp.Options].
	NoSync bool
}

// Ready is a gradient that has become final.
type Ready struct {
	Param int     // index in Params
	FLOP  float64 // FLOPs since the previous gradient
}

// Group is all layers of one kind.
type Group struct {
	Kind   string `json:"kind"`
	Params int    `json:"parameters"` // elements
}

// Count runs a step of the model with a batch of this number of samples, at least 1. For storesBF16
// see [Counter]. The model's parameters have no memory afterwards.
func Count(m nn.Model, s Sample, batch int, p device.Precision, storesBF16 bool) Work {
	params := m.Params()
	w := Work{Groups: groups(params)}
	for _, q := range params {
		w.Params = append(w.Params, q.Len())
	}
	var weights, input Counter
	activations := Counter{StoresBF16: storesBF16}
	nn.AllocValues(&weights, params)
	nn.AllocGrads(&weights, params)
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

// NumParams returns the total number of elements of all parameters.
func (w Work) NumParams() int {
	n := 0
	for _, p := range w.Params {
		n += p
	}
	return n
}

// backward returns the FLOPs of the backward pass.
func (w Work) backward() float64 {
	sum := 0.0
	for _, r := range w.Backward {
		sum += r.FLOP
	}
	return sum
}

// FLOP returns the FLOPs of both passes.
func (w Work) FLOP() float64 { return w.Forward + w.backward() }

// groups groups parameters by the kinds of their layers.
func groups(params []*nn.Param) []Group {
	var out []Group
	kinds := map[string]string{} // kinds of layers, by prefix of their parameters' names
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

// kindOf returns the kind of the layer that a weight belongs to.
func kindOf(weight *nn.Param) string {
	switch {
	case strings.HasPrefix(weight.Name, "wte."), strings.HasPrefix(weight.Name, "wpe."):
		return "embedding"
	case strings.Contains(weight.Name, ".attn."):
		return "attention"
	case strings.Contains(weight.Name, ".mlp."):
		return "mlp"
	case len(weight.Shape) == 1:
		return "normalization"
	case len(weight.Shape) == 4:
		return "convolution"
	}
	return "linear"
}
