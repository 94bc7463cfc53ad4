package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// maxPool is PyTorch's nn.MaxPool2d. Each row is an image.
type maxPool struct {
	noParams
	shape  device.PoolShape
	device device.Device
	chosen device.Tensor // for each output of the last Forward, the index of the maximum in its window
}

func (l *maxPool) Width() int    { return l.shape.Channels * l.shape.OutHeight() * l.shape.OutWidth() }
func (l *maxPool) InPlace() bool { return false }

func (l *maxPool) Plan(p Plan) {
	l.device = p.Device
	l.chosen = p.Device.Alloc(device.Int32, p.rows*l.Width())
}

func (l *maxPool) Forward(y, x device.Matrix, _ Pass) {
	l.device.MaxPool(y, l.chosen.Slice(0, y.Rows*y.Cols), x, l.shape)
}

func (l *maxPool) Backward(dx, dy, _, _ device.Matrix, _ Pass) {
	l.device.MaxPoolGrad(dx, dy, l.chosen.Slice(0, dy.Rows*dy.Cols), l.shape)
}
