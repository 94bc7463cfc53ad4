package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Layer is one stage of a model: a function of rows, each a sample or a token. Who
// calls it owns the memory of its arguments. A training step calls Forward, then
// Gradient for each parameter from the last to the first, then Backward unless
// nothing before it needs the gradient; x and y of Forward are as they were then.
type Layer interface {
	// Params returns the parameters in PyTorch's order of registration.
	Params() []*Param
	// Init draws initial values for the parameters.
	Init(g *random.Generator, m device.Memory)
	// Width returns the outputs per row.
	Width() int
	// InPlace reports whether y may be x: Backward does not need x then.
	InPlace() bool
	// Plan gets what the layer needs for itself.
	Plan(p Plan)
	// Forward writes the outputs for the rows of x.
	Forward(y, x device.Matrix, pass Pass)
	// Gradient writes the gradient of parameter i of Params to its Grad, from the
	// gradient dy of the outputs, or adds it if the pass says so.
	Gradient(i int, dy, x device.Matrix, pass Pass)
	// Backward writes the gradient of x to dx, which may be dy if InPlace.
	Backward(dx, dy, x, y device.Matrix, pass Pass)
}

// Plan is what a model is laid out for.
type Plan struct {
	Device    device.Device
	Batch     int // samples, at most
	Length    int // tokens of a sequence, at most; 0 is a GPT's whole context
	Precision device.Precision
	// Train says that there will be a backward pass.
	Train bool

	rows int // of a layer's input, at most
}

// stored is memory for so many numbers that one operation leaves to others.
func (p Plan) stored(n int) device.Tensor { return p.Device.Alloc(p.Device.Stored(p.Precision), n) }

// Pass is how a batch goes through a model.
type Pass struct {
	// Train says that dropout is at work and that a backward pass follows.
	Train bool
	// Accumulate has gradients added to what their memory holds.
	Accumulate bool
	// Weight multiplies the gradients, not the loss that is returned: 1, or one over
	// the number of batches whose gradients are added up.
	Weight float32
	// Late has Forward leave out the loss in training: to be told it is to wait for the
	// device. Model.Losses has it.
	Late bool
	// Seed is for dropout, of the step. Sample i of the batch is number
	// First + i*Stride of all samples of the step on all ranks.
	Seed          uint64
	First, Stride int
	// Owner, unless nil, is asked for the memory of parameters before it is used.
	Owner Owner
}

// Owner lends parameters their memory for a time, where they do not all have it all
// the time.
type Owner interface {
	// NeedValues returns when Data of the parameters holds their values. It stays so
	// until the next call.
	NeedValues(params []*Param)
	// NeedGrads returns when Grad of the parameters has memory, which holds nothing of
	// meaning. It stays so until Backward has called ready for them.
	NeedGrads(params []*Param)
}

// values is before the values of parameters are read.
func (p Pass) values(params []*Param) {
	if p.Owner != nil && len(params) > 0 {
		p.Owner.NeedValues(params)
	}
}

// grads is before gradients of parameters are written.
func (p Pass) grads(params []*Param) {
	if p.Owner != nil && len(params) > 0 {
		p.Owner.NeedGrads(params)
	}
}

// noParams is the part of a layer without parameters.
type noParams struct{}

func (noParams) Params() []*Param                                 { return nil }
func (noParams) Init(*random.Generator, device.Memory)            {}
func (noParams) Gradient(int, device.Matrix, device.Matrix, Pass) {}
