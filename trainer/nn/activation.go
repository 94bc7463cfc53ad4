package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// activation is an elementwise function: nn.ReLU, nn.Tanh, or nn.GELU(approximate="tanh").
type activation struct {
	noParams
	width  int
	f      device.Activation
	device device.Device
}

func (l *activation) Width() int { return l.width }

// InPlace returns false for GELU only, whose gradient needs its input.
func (l *activation) InPlace() bool { return l.f != device.GELU }

func (l *activation) Plan(p Plan) { l.device = p.Device }

func (l *activation) Forward(y, x device.Matrix, _ Pass) {
	l.device.Activate(l.f, y.Data, x.Data)
}

func (l *activation) Backward(dx, dy, x, y device.Matrix, _ Pass) {
	l.device.ActivateGrad(l.f, dx.Data, dy.Data, x.Data, y.Data)
}
