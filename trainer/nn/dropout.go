package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// dropout is nn.Dropout: in training each element is left out with probability p,
// and the others grow by 1/(1-p). Which ones does not depend on how the batch is
// divided among ranks, see [device.Dropout]; it is not PyTorch's choice.
type dropout struct {
	noParams
	width  int
	p      float32
	site   uint64 // tells the dropouts of a model apart
	device device.Device
}

func (l *dropout) Width() int    { return l.width }
func (l *dropout) InPlace() bool { return false }
func (l *dropout) Plan(p Plan)   { l.device = p.Device }

func (l *dropout) Forward(y, x device.Matrix, pass Pass) {
	if !pass.Train {
		l.device.Copy(y.Data, x.Data)
		return
	}
	l.device.Dropout(y.Data, x.Data, pass.dropout(l.p, l.site, l.width))
}

func (l *dropout) Backward(dx, dy, _, _ device.Matrix, pass Pass) {
	l.device.Dropout(dx.Data, dy.Data, pass.dropout(l.p, l.site, l.width))
}

// dropout is the choice of one place of the model in this pass.
func (p Pass) dropout(probability float32, site uint64, perSample int) device.Dropout {
	// Seeds of steps are spread already, see the trainer; sites are small numbers.
	return device.Dropout{P: probability, Key: p.Seed ^ site*0x9e3779b97f4a7c15, First: p.First, Stride: p.Stride, PerSample: perSample}
}
