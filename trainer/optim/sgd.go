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

	device          device.Device
	whole, segments []segment
	buffers         []buffer       // per parameter; none without momentum
	initialised     bool           // buffers hold the result of a step
	counts          device.Verdict // that knows initialised
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
	whole := wholeParams(params)
	s := &SGD{LR: lr, Momentum: momentum, WeightDecay: weightDecay, Nesterov: nesterov, device: d, whole: whole, segments: whole}
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

// SetDecaying limits weight decay to ranges of the parameters' elements.
func (s *SGD) SetDecaying(ranges [][]nn.Range) { s.segments = splitByDecay(s.whole, ranges) }

// State returns the momentum buffers, each named "momentum." and the name of
// its parameter; there are none without momentum. On the host
// their Data are the optimizer's own memory: they change at the next step.
func (s *SGD) State() State { return s.StateBy(reading(s.device)) }

// StateBy is State with arrays that are read by read.
func (s *SGD) StateBy(read Read) State {
	var list []Tensor
	for _, b := range s.buffers {
		list = append(list, b.tensor(read))
	}
	return State{KindSGD, s.initialised, list}
}

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
	s.initialised, s.counts = from.Initialised, nil
	return nil
}

// Step updates Data of all parameters from their Grad times gradScale.
func (s *SGD) Step(params []*nn.Param, gradScale float32) {
	s.checkParams(params)
	f := s.factors()
	f.GradScale, f.First = gradScale, !s.initialised
	plain := f
	plain.Decay = 0
	for _, g := range s.segments {
		factors := f
		if !g.decays {
			factors = plain
		}
		value, grad, buffer := s.tensors(g, params[g.param])
		s.device.SGD(value, grad, buffer, factors)
	}
	s.Taken()
	s.counts = nil
}

// StepLater is Step if the verdict is for it.
func (s *SGD) StepLater(params []*nn.Param, v device.Verdict, most float64) {
	s.checkParams(params)
	if s.counts != v {
		made := int64(0)
		if s.initialised {
			made = 1 // or more: only the first is of another kind
		}
		v.Count(made)
		s.counts = v
	}
	v.DecideSGD(most, s.factors())
	for _, g := range s.segments {
		value, grad, buffer := s.tensors(g, params[g.param])
		v.SGD(value, grad, buffer, g.decays)
	}
}

// Taken says that the buffers hold the result of a step.
func (s *SGD) Taken() { s.initialised = s.buffers != nil }

func (s *SGD) checkParams(params []*nn.Param) {
	if len(params) != len(s.whole) {
		panic(fmt.Sprintf("optim: step of %d parameters, made for %d", len(params), len(s.whole)))
	}
}

// factors are those that are the same in every step of this rate.
func (s *SGD) factors() device.SGDFactors {
	return device.SGDFactors{LR: float32(s.LR), Momentum: float32(s.Momentum), Decay: float32(s.WeightDecay), Nesterov: s.Nesterov}
}

// tensors returns what the update of a segment of parameter p reads and writes. Without
// momentum, the buffer is empty.
func (s *SGD) tensors(g segment, p *nn.Param) (value, grad, buffer device.Tensor) {
	if s.buffers != nil {
		buffer = s.buffers[g.param].data.Slice(g.first, g.end)
	}
	return p.Data.Slice(g.first, g.end), p.Grad.Slice(g.first, g.end), buffer
}
