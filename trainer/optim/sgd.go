package optim

import (
	"errors"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// momentumPrefix is the prefix for the names of momentum buffers. The parameter's name follows.
const momentumPrefix = "momentum."

// SGD is stochastic gradient descent with momentum, torch.optim.SGD. The exported fields may be
// changed between steps, but Momentum must not change from or to zero.
type SGD struct {
	LR          float64 // learning rate
	Momentum    float64 // fraction of the last update that is added to the next; 0 is plain SGD
	WeightDecay float64 // L2 penalty, added to gradients as WeightDecay times the value
	Nesterov    bool    // Nesterov momentum

	device          device.Device
	whole, segments []segment
	buffers         []buffer            // per parameter; nil without momentum
	initialized     bool                // buffers hold the result of a step
	countedBy       device.StepDecision // the verdict to which initialized was passed
}

// NewSGD returns an optimizer for the given parameters, which are on the device, with the limits of
// torch.optim.SGD: no negative values, and Nesterov only with momentum. Values must be finite. It
// allocates all of the optimizer's memory.
func NewSGD(d device.Device, params []*nn.Param, lr, momentum, weightDecay float64, nesterov bool) (*SGD, error) {
	if err := check(setting{"learning rate", lr}, setting{"momentum", momentum}, setting{"weight decay", weightDecay}); err != nil {
		return nil, err
	}
	if nesterov && momentum == 0 {
		return nil, errors.New("momentum must be above 0 with nesterov")
	}
	whole := wholeParams(params)
	s := &SGD{LR: lr, Momentum: momentum, WeightDecay: weightDecay, Nesterov: nesterov, device: d, whole: whole, segments: whole}
	if momentum != 0 {
		s.buffers = newBuffers(d, momentumPrefix, params)
	}
	return s, nil
}

// Kind returns [KindSGD].
func (s *SGD) Kind() string { return KindSGD }

// Rate returns LR.
func (s *SGD) Rate() float64 { return s.LR }

// SetRate sets LR.
func (s *SGD) SetRate(lr float64) { s.LR = lr }

// SetDecaying limits weight decay to ranges of the parameters' elements.
func (s *SGD) SetDecaying(ranges [][]nn.Range) { s.segments = splitByDecay(s.whole, ranges) }

// State returns the momentum buffers, named "momentum." and the name of the parameter. Without
// momentum it returns no tensors. On the host, their Data is the optimizer's own memory: it changes
// at the next step.
func (s *SGD) State() State { return s.StateBy(defaultRead(s.device)) }

// StateBy is like State, but reads arrays with read.
func (s *SGD) StateBy(read Read) State {
	var list []Tensor
	for _, b := range s.buffers {
		list = append(list, b.tensor(read))
	}
	return State{KindSGD, s.initialized, list}
}

// Restore copies the state of an SGD for the same parameters, with tensors in any order. A state
// without a kind is treated as SGD's, which was the only kind before states recorded it. If a
// tensor is missing, unknown, or has a different shape, it returns an error and changes nothing.
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
	s.initialized, s.countedBy = from.Initialized, nil
	return nil
}

// Step updates Data of all parameters with their Grad times gradScale.
func (s *SGD) Step(params []*nn.Param, gradScale float32) {
	s.checkParams(params)
	f := s.factors()
	f.GradScale, f.First = gradScale, !s.initialized
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
	s.CountStep()
	s.countedBy = nil
}

// StepAsync enqueues Step on the device, which skips the update unless loss and gradients are
// finite.
func (s *SGD) StepAsync(params []*nn.Param, v device.StepDecision, most float64) {
	s.checkParams(params)
	if s.countedBy != v {
		made := int64(0)
		if s.initialized {
			made = 1 // or more: only the first step is special
		}
		v.Count(made)
		s.countedBy = v
	}
	v.DecideSGD(most, s.factors())
	for _, g := range s.segments {
		value, grad, buffer := s.tensors(g, params[g.param])
		v.SGD(value, grad, buffer, g.decays)
	}
}

// CountStep reports that the buffers hold the result of a step.
func (s *SGD) CountStep() { s.initialized = s.buffers != nil }

func (s *SGD) checkParams(params []*nn.Param) {
	if len(params) != len(s.whole) {
		panic(fmt.Sprintf("optim: step of %d parameters, made for %d", len(params), len(s.whole)))
	}
}

// factors returns the factors that are the same in every step with this learning rate.
func (s *SGD) factors() device.SGDFactors {
	return device.SGDFactors{LR: float32(s.LR), Momentum: float32(s.Momentum), Decay: float32(s.WeightDecay), Nesterov: s.Nesterov}
}

// tensors returns the tensors that the update of a segment of parameter p reads and writes. Without
// momentum, the buffer is empty.
func (s *SGD) tensors(g segment, p *nn.Param) (value, grad, buffer device.Tensor) {
	if s.buffers != nil {
		buffer = s.buffers[g.param].data.Slice(g.first, g.end)
	}
	return p.Data.Slice(g.first, g.end), p.Grad.Slice(g.first, g.end), buffer
}
