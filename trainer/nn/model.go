// Package nn implements the models that the trainer supports: a linear map, the multilayer
// perceptron, a convolutional network for images, and GPT-2, with their losses and gradients, on
// any [device.Device].
//
// Plan allocates all memory for the largest batch; after that, a step allocates nothing. The owner
// of the parameters decides where they and their gradients are stored (see [Param]). Gradients are
// written directly to that memory, for example into a bucket that is reduced across ranks.
//
// Names, shapes, initial weights, and arithmetic equal PyTorch's modules and, for GPT-2, Hugging
// Face's. Initial weights are bit-identical, except for normal values, which differ by the rounding
// of a logarithm. Outputs and gradients differ only by the order and the rounding of sums. They do
// not depend on the number of threads, and each row's results do not depend on the batch size. The
// losses of a batch are summed in float64.
//
// [Generator] and [Sampler] generate text with a GPT. [OpenWeights] reads the weights of a GPT-2
// from a safetensors file with Hugging Face's names.
//
// The package has no automatic differentiation, and it does not depend on ranks. Incorrect use,
// such as a batch larger than planned, panics: it is an error in the program, not in its input.
package nn

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Model is a network with its loss. It processes one batch at a time.
type Model interface {
	// Params returns the parameters in PyTorch's registration order.
	Params() []*Param
	// Init initializes the parameters as the PyTorch module does if its generator is in the state
	// of g. The parameters must have memory.
	Init(g *random.Generator, m device.Memory)
	// Plan allocates all memory for batches as described by p, except memory for parameters and
	// gradients.
	Plan(p Plan)
	// Forward returns the loss of a batch. In training, for which Plan.Train must have been set, it
	// may also write gradients. The contents of the batch must not change before Backward.
	Forward(b Batch, pass Pass) Outcome
	// Losses returns the losses of the rows of the last Forward, in device memory that the next
	// Forward overwrites. Their sum, divided by parts, is the loss of the batch.
	Losses() (rows device.Tensor, parts int)
	// Backward writes the gradients of the last Forward, given the same arguments. It calls
	// ready(i) as soon as the gradient of parameter i is final, from the last parameter to the
	// first, so that its reduction overlaps the rest of the backward pass. ready may be nil.
	Backward(b Batch, pass Pass, ready func(param int))
}

// Batch holds samples in device memory: rows of X or sequences of Tokens, with Labels or Targets.
// Each tensor has exactly as many elements as the samples need.
type Batch struct {
	Samples int
	X       device.Tensor // a row of inputs per sample, or
	Tokens  device.Tensor // Int32: a sequence per sample
	Labels  device.Tensor // Int32: one per sample or token, or
	Targets device.Tensor // a row per sample
}

// Outcome is the result of a forward pass.
type Outcome struct {
	Loss    float64 // mean over Count
	Count   int     // number of labels, or of samples if there are no labels
	Correct int     // number of labels with the largest logit; not counted in training
}

// checkBatch panics if a batch does not match the plan.
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

// setIndices sets the index of each parameter.
func setIndices(params []*Param) []*Param {
	for i, p := range params {
		p.index = i
	}
	return params
}
