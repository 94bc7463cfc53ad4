// Package nn holds the models that the trainer trains: a linear map, the
// multilayer perceptron, a convolutional network for images and GPT-2, with their
// losses and gradients, on any [device.Device].
//
// Memory is planned. Plan gets everything for the largest batch from the device,
// and after that a step allocates nothing. Parameters and gradients live where
// their owner puts them (see [Param]), and a gradient is written straight there:
// into a buffer that is being reduced over all ranks, if that is where it lies.
//
// Names, shapes, initial weights and arithmetic are those of PyTorch's modules,
// and for GPT-2 those of Hugging Face's. Initial weights are equal bit for bit,
// but for normal draws, which are equal to the rounding of a logarithm. Outputs
// and gradients are equal up to the order and the rounding of additions, which do
// not depend on the number of threads or, in a row, on the size of the batch. The
// losses of a batch are added up in float64.
//
// It does not differentiate programs, or know anything of ranks. Misuse, such as
// a batch that is larger than planned, panics: it is an error in the program, not
// in its input.
package nn

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Model is a network with its loss. It serves one batch at a time.
type Model interface {
	// Params returns the parameters in PyTorch's order of registration.
	Params() []*Param
	// Init draws the values that the PyTorch module has when its generator is in the
	// state of g. The parameters must have memory for them.
	Init(g *random.Generator, m device.Memory)
	// Plan gets all memory for batches as p says, but that of parameters and
	// gradients.
	Plan(p Plan)
	// Forward returns the loss of a batch. In training, which Plan must have been
	// told of, it may also write gradients. What the batch holds must not change
	// before Backward.
	Forward(b Batch, pass Pass) Outcome
	// Losses are those of the rows of the last Forward, in the device's memory until the
	// next, and the number of parts that its loss is the mean of: see [Mean].
	Losses() (rows device.Tensor, parts int)
	// Backward writes the gradients of the last Forward, given the same arguments.
	// As soon as the gradient of parameter i is final it calls ready(i), in the order
	// from the last parameter to the first, so that its reduction over ranks can
	// begin while the rest is computed. A nil ready is not called.
	Backward(b Batch, pass Pass, ready func(param int))
}

// Batch is samples in a device's memory: rows of X or sequences of Tokens, with
// Labels or Targets for them. Tensors have as many elements as the samples need.
type Batch struct {
	Samples int
	X       device.Tensor // a row of inputs per sample, or
	Tokens  device.Tensor // Int32: a sequence per sample
	Labels  device.Tensor // Int32: one per sample or token, or
	Targets device.Tensor // a row per sample
}

// Outcome is how a model did on a batch.
type Outcome struct {
	Loss    float64 // mean over Count
	Count   int     // labels; samples if there are none
	Correct int     // labels that were the model's first choice; not counted in training
}

// checkBatch panics if a batch is not one that was planned for.
func (p Plan) checkBatch(b Batch, pass Pass) {
	if b.Samples < 1 || b.Samples > p.Batch {
		panic(fmt.Sprintf("nn: batch of %d samples, planned for %d", b.Samples, p.Batch))
	}
	if pass.Train && !p.Train {
		panic("nn: training with a model that was not planned for it")
	}
	if pass.Train && !(pass.Weight > 0) {
		panic(fmt.Sprintf("nn: training with weight %v", pass.Weight))
	}
}

// number gives parameters their places in a model.
func number(params []*Param) []*Param {
	for i, p := range params {
		p.index = i
	}
	return params
}
