package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// convolution is PyTorch's nn.Conv2d with stride 1. Each row is an image.
type convolution struct {
	shape        device.ConvolutionShape
	weight, bias *Param // [out, in, kernel, kernel], [out]
	params       []*Param
	op           device.Convolution
}

// newConvolution returns a layer whose parameters' names begin with prefix.
func newConvolution(prefix string, s device.ConvolutionShape) *convolution {
	weight, bias := newParam(prefix+"weight", s.Out, s.In, s.Kernel, s.Kernel), newParam(prefix+"bias", s.Out)
	return &convolution{shape: s, weight: weight, bias: bias, params: []*Param{weight, bias}}
}

func (l *convolution) Params() []*Param { return l.params }
func (l *convolution) Width() int       { return l.shape.Out * l.shape.OutHeight() * l.shape.OutWidth() }
func (l *convolution) InPlace() bool    { return false }

func (l *convolution) Plan(p Plan) {
	l.shape.Precision = p.Precision
	l.op = p.Device.NewConvolution(l.shape)
}

// Init initializes the parameters like nn.Conv2d's reset_parameters.
func (l *convolution) Init(g *random.Generator, m device.Memory) {
	kaimingUniform(g, m, l.weight, l.bias, l.shape.In*l.shape.Kernel*l.shape.Kernel)
}

func (l *convolution) Forward(y, x device.Matrix, pass Pass) {
	pass.values(l.params)
	l.op.Forward(y, x, l.weight.matrix(l.weight.Data), l.bias.Data)
}

func (l *convolution) Gradient(i int, dy, x device.Matrix, pass Pass) {
	pass.grads(l.params[i : i+1])
	if i == 1 {
		l.op.BiasGrad(l.bias.Grad, dy, pass.Accumulate)
		return
	}
	l.op.WeightGrad(l.weight.matrix(l.weight.Grad), dy, x, pass.Accumulate)
}

func (l *convolution) Backward(dx, dy, _, _ device.Matrix, pass Pass) {
	pass.values(l.params)
	l.op.InputGrad(dx, dy, l.weight.matrix(l.weight.Data))
}
