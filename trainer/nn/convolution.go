package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// convolution is PyTorch's nn.Conv2d with stride 1, of images as rows.
type convolution struct {
	shape        device.ConvolutionShape
	weight, bias *Param // [out, in, kernel, kernel], [out]
	op           device.Convolution
}

// newConvolution returns a layer whose parameters' names begin with prefix.
func newConvolution(prefix string, s device.ConvolutionShape) *convolution {
	return &convolution{shape: s, weight: newParam(prefix+"weight", s.Out, s.In, s.Kernel, s.Kernel), bias: newParam(prefix+"bias", s.Out)}
}

func (l *convolution) Params() []*Param { return []*Param{l.weight, l.bias} }
func (l *convolution) Width() int       { return l.shape.Out * l.shape.OutHeight() * l.shape.OutWidth() }
func (l *convolution) InPlace() bool    { return false }

func (l *convolution) Plan(p Plan) {
	l.shape.Precision = p.Precision
	l.op = p.Device.NewConvolution(l.shape)
}

// Init is nn.Conv2d's reset_parameters.
func (l *convolution) Init(g *random.Generator, m device.Memory) {
	kaimingUniform(g, m, l.weight, l.bias, l.shape.In*l.shape.Kernel*l.shape.Kernel)
}

func (l *convolution) Forward(y, x device.Matrix, _ Pass) {
	l.op.Forward(y, x, l.weight.matrix(l.weight.Data), l.bias.Data)
}

func (l *convolution) Gradient(i int, dy, x device.Matrix, pass Pass) {
	if i == 1 {
		l.op.BiasGrad(l.bias.Grad, dy, pass.Accumulate)
		return
	}
	l.op.WeightGrad(l.weight.matrix(l.weight.Grad), dy, x, pass.Accumulate)
}

func (l *convolution) Backward(dx, dy, _, _ device.Matrix, _ Pass) {
	l.op.InputGrad(dx, dy, l.weight.matrix(l.weight.Data))
}
