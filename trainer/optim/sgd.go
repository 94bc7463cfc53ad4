package optim

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// momentumPrefix begins the names of momentum buffers, before the parameter's.
const momentumPrefix = "momentum."

// SGD is stochastic gradient descent with momentum, torch.optim.SGD. The exported fields may be
// changed between steps, but Momentum not from or to zero.
type SGD struct {
	LR          float64 // learning rate
	Momentum    float64 // part of the last update that goes on; 0 is plain descent
	WeightDecay float64 // L2 penalty, added to gradients as WeightDecay times the value
	Nesterov    bool    // look ahead along the momentum

	device      device.Device
	buffers     []buffer // per parameter; none without momentum
	initialised bool     // buffers hold the result of a step
}

// NewSGD returns an optimizer for the given parameters, which the device holds, with the limits that
// torch.optim.SGD sets: nothing negative, and Nesterov's only with momentum.
// Values must be finite. All its memory is allocated here.
func NewSGD(d device.Device, params []*nn.Param, lr, momentum, weightDecay float64, nesterov bool) (*SGD, error) {
	if err := check(setting{"learning rate", lr}, setting{"momentum", momentum}, setting{"weight decay", weightDecay}); err != nil {
		return nil, err
	}
	if nesterov && momentum == 0 {
		return nil, fmt.Errorf("make an optimizer: Nesterov's momentum needs a momentum above 0")
	}
	s := &SGD{LR: lr, Momentum: momentum, WeightDecay: weightDecay, Nesterov: nesterov, device: d}
	if momentum != 0 {
		s.buffers = newBuffers(d, momentumPrefix, params)
	}
	return s, nil
}

// Kind is [KindSGD].
func (s *SGD) Kind() string { return KindSGD }

// Rate is LR.
func (s *SGD) Rate() float64 { return s.LR }

// SetRate sets LR.
func (s *SGD) SetRate(lr float64) { s.LR = lr }

// State returns the momentum buffers, each named "momentum." and the name of
// its parameter; there are none without momentum. On the host
// their Data are the optimizer's own memory: they change at the next step.
func (s *SGD) State() State { return State{KindSGD, s.initialised, tensors(s.device, s.buffers)} }

// Restore copies a state that an SGD for the same parameters had, with tensors
// in any order. A state that names no kind is taken for SGD's, which was the only
// one before states named theirs. If a tensor is missing, unknown or of another
// shape, it returns an error and changes nothing.
func (s *SGD) Restore(from State) error {
	if from.Kind == "" {
		from.Kind = KindSGD
	}
	given, err := match(KindSGD, s.buffers, from)
	if err != nil {
		return err
	}
	for _, b := range s.buffers {
		s.device.Write(b.data, given[b.name].Data)
	}
	s.initialised = from.Initialised
	return nil
}

// Step updates Data of all parameters from their Grad times gradScale.
func (s *SGD) Step(params []*nn.Param, gradScale float32) {
	f := device.SGDFactors{LR: float32(s.LR), Momentum: float32(s.Momentum), Decay: float32(s.WeightDecay),
		GradScale: gradScale, Nesterov: s.Nesterov, First: !s.initialised}
	if s.buffers == nil {
		for _, p := range params {
			s.device.SGD(p.Data, p.Grad, device.Tensor{}, f)
		}
		return
	}
	if len(params) != len(s.buffers) {
		panic(fmt.Sprintf("optim: step of %d parameters, made for %d", len(params), len(s.buffers)))
	}
	for i, p := range params {
		s.device.SGD(p.Data, p.Grad, s.buffers[i].data, f)
	}
	s.initialised = true
}
