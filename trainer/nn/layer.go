package nn

import "github.com/ddpbatch/ddpbatch/trainer/random"

// Layer is one stage of a model. A step calls Forward, then Gradient for its
// parameters, then Backward unless nothing before it needs the gradient. What
// Forward and Backward return is valid until their next call. The layer may read
// the matrix given to Forward until the step ends.
type Layer interface {
	// Params returns the parameters in PyTorch's order of registration.
	Params() []*Param
	// Init draws initial values for the parameters.
	Init(g *random.Generator)
	// Plan allocates for batches of up to maxBatch samples. Without inputGrad,
	// Backward will not be called.
	Plan(maxBatch int, inputGrad bool)
	// Forward returns the layer's output for the rows of x.
	Forward(x Matrix) Matrix
	// Gradient writes the gradient of parameter i of Params to its Grad, from the
	// gradient dy of the last output.
	Gradient(i int, dy Matrix)
	// Backward returns the gradient of the last input.
	Backward(dy Matrix) Matrix
}

// noParams is the part of a layer without parameters.
type noParams struct{}

func (noParams) Params() []*Param       { return nil }
func (noParams) Init(*random.Generator) {}
func (noParams) Gradient(int, Matrix)   {}
