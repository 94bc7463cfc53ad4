package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// dropout is nn.Dropout: in training it zeroes each element with probability p and scales the
// others by 1/(1-p). The mask does not depend on how ranks share the batch, see [device.Dropout].
// It differs from PyTorch's mask.
type dropout struct {
	noParams
	width  int
	p      float32
	site   uint64 // distinguishes the dropouts of a model
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

// dropout returns the mask of a dropout site in this pass.
func (p Pass) dropout(probability float32, site uint64, perSample int) device.Dropout {
	// The seeds of steps are well distributed, see package trainer; sites are small integers.
	return device.Dropout{P: probability, Key: p.Seed ^ site*0x9e3779b97f4a7c15, First: p.First, Stride: p.Stride, PerSample: perSample}
}
