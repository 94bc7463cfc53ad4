package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Layer is one stage of a model: a function of rows, each a sample or a token. The caller owns the
// memory of all arguments. A training step calls Forward, then Gradient for each parameter from the
// last to the first, then Backward unless no earlier layer needs the gradient. x and y must not
// change between Forward and Backward.
type Layer interface {
	// Params returns the parameters in PyTorch's registration order.
	Params() []*Param
	// Init initializes the parameters with random values.
	Init(g *random.Generator, m device.Memory)
	// Width returns the number of outputs per row.
	Width() int
	// InPlace reports whether y may be x. Then Backward does not need x.
	InPlace() bool
	// Plan allocates the layer's own memory.
	Plan(p Plan)
	// Forward writes the outputs for the rows of x.
	Forward(y, x device.Matrix, pass Pass)
	// Gradient computes the gradient of parameter i of Params from dy, the gradient of the outputs.
	// It writes the result to Grad, or adds it if pass.Accumulate is set.
	Gradient(i int, dy, x device.Matrix, pass Pass)
	// Backward writes the gradient of x to dx, which may be dy if InPlace.
	Backward(dx, dy, x, y device.Matrix, pass Pass)
}

// Plan describes the device, the maximum batch, and the precision that a model is prepared for.
type Plan struct {
	Device    device.Device
	Batch     int // maximum number of samples
	Length    int // maximum tokens per sequence; 0 means a GPT's whole context
	Precision device.Precision
	// Train allows training passes, which need a backward pass.
	Train bool

	rows int // maximum rows of a layer's input
}

// alloc allocates n elements for data that one operation passes to others.
func (p Plan) alloc(n int) device.Tensor { return p.Device.Alloc(p.Device.Stored(p.Precision), n) }

// Pass holds the parameters of a forward and backward pass of one batch.
type Pass struct {
	// Train enables dropout. A backward pass follows.
	Train bool
	// Accumulate adds gradients to the contents of Grad instead of overwriting them.
	Accumulate bool
	// Weight scales the gradients but not the returned loss. It is the batch's fraction of the
	// samples of the step.
	Weight float32
	// DeferLoss makes Forward return 0 as the loss in training, because computing it would wait for
	// the device. Model.Losses returns the losses of the rows.
	DeferLoss bool
	// Seed is the step's dropout seed. Sample i of the batch has the index First + i*Stride among
	// all samples of the step on all ranks.
	Seed          uint64
	First, Stride int
	// Owner, unless nil, provides the memory of parameters before it is used.
	Owner Owner
}

// Owner provides memory for parameters temporarily, if not all of them have permanent memory.
type Owner interface {
	// NeedValues returns when Data of the parameters holds their values. They stay valid until the
	// next call.
	NeedValues(params []*Param)
	// NeedGrads returns when Grad of the parameters has memory, with undefined contents. It stays
	// valid until Backward has called ready for them.
	NeedGrads(params []*Param)
}

// values must be called before the values of parameters are read.
func (p Pass) values(params []*Param) {
	if p.Owner != nil && len(params) > 0 {
		p.Owner.NeedValues(params)
	}
}

// grads must be called before gradients of parameters are written.
func (p Pass) grads(params []*Param) {
	if p.Owner != nil && len(params) > 0 {
		p.Owner.NeedGrads(params)
	}
}

// noParams implements the parameter methods for a layer without parameters.
type noParams struct{}

func (noParams) Params() []*Param                                 { return nil }
func (noParams) Init(*random.Generator, device.Memory)            {}
func (noParams) Gradient(int, device.Matrix, device.Matrix, Pass) {}
