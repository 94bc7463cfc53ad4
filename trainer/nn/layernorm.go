package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// layerNorm is PyTorch's nn.LayerNorm over the columns.
type layerNorm struct {
	width        int
	weight, bias *Param // [width] each
	params       []*Param
	device       device.Device
	mean, rstd   device.Tensor // of each row of the last Forward
}

func newLayerNorm(prefix string, width int) *layerNorm {
	weight, bias := newParam(prefix+"weight", width), newParam(prefix+"bias", width)
	return &layerNorm{width: width, weight: weight, bias: bias, params: []*Param{weight, bias}}
}

func (l *layerNorm) Params() []*Param { return l.params }

func (l *layerNorm) Plan(p Plan) {
	l.device = p.Device
	l.mean, l.rstd = p.Device.Alloc(device.Float32, p.rows), p.Device.Alloc(device.Float32, p.rows)
}

// Init sets the parameters to ones and zeros, like nn.LayerNorm's reset_parameters.
func (l *layerNorm) Init(_ *random.Generator, m device.Memory) {
	device.Fill(m, l.weight.Data, func(v []float32) {
		for i := range v {
			v[i] = 1
		}
	})
	m.Zero(l.bias.Data)
}

func (l *layerNorm) forward(y, x device.Matrix, pass Pass) {
	pass.values(l.params)
	l.device.LayerNorm(y, l.mean.Slice(0, x.Rows), l.rstd.Slice(0, x.Rows), x, l.weight.Data, l.bias.Data)
}

// forwardSum computes x = a + b, then forward of x.
func (l *layerNorm) forwardSum(y, x, a, b device.Matrix, pass Pass) {
	pass.values(l.params)
	l.device.AddLayerNorm(y, x, l.mean.Slice(0, x.Rows), l.rstd.Slice(0, x.Rows), a, b, l.weight.Data, l.bias.Data)
}

// backward writes the gradients of both parameters, and the gradient of x to dx, or adds it if add is
// set. Then it copies dx to copied, unless it is empty.
func (l *layerNorm) backward(dx device.Matrix, copied device.Tensor, dy, x device.Matrix, add bool, pass Pass, ready func(*Param)) {
	pass.values(l.params)
	pass.grads(l.params)
	l.device.LayerNormBackward(device.LayerNormGradients{DX: dx, AddX: add, Copy: copied, DW: l.weight.Grad, DB: l.bias.Grad, Accumulate: pass.Accumulate,
		DY: dy, X: x, W: l.weight.Data, Mean: l.mean.Slice(0, x.Rows), RStd: l.rstd.Slice(0, x.Rows)})
	ready(l.bias)
	ready(l.weight)
}
