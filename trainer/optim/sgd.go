package optim

import (
	"fmt"

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

	buffers     []Tensor // per parameter; none without momentum
	initialised bool     // buffers hold the result of a step
}

// NewSGD returns an optimizer for the given parameters, with the limits that
// torch.optim.SGD sets: nothing negative, and Nesterov's only with momentum.
// Values must be finite. All its memory is allocated here.
func NewSGD(params []*nn.Param, lr, momentum, weightDecay float64, nesterov bool) (*SGD, error) {
	if err := check(setting{"learning rate", lr}, setting{"momentum", momentum}, setting{"weight decay", weightDecay}); err != nil {
		return nil, err
	}
	if nesterov && momentum == 0 {
		return nil, fmt.Errorf("make an optimizer: Nesterov's momentum needs a momentum above 0")
	}
	s := &SGD{LR: lr, Momentum: momentum, WeightDecay: weightDecay, Nesterov: nesterov}
	if momentum != 0 {
		for _, p := range params {
			s.buffers = append(s.buffers, Tensor{
				Name:  momentumPrefix + p.Name,
				Shape: p.Shape,
				Data:  make([]float32, len(p.Data)),
			})
		}
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
// its parameter; there are none without momentum. Their Data are the optimizer's
// own memory: they change at the next step.
func (s *SGD) State() State { return State{KindSGD, s.initialised, s.buffers} }

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
		copy(b.Data, given[b.Name].Data)
	}
	s.initialised = from.Initialised
	return nil
}

// Step updates Data of all parameters from their Grad, which it leaves as they
// are. They must be those that the optimizer was made for, in the same order.
func (s *SGD) Step(params []*nn.Param) {
	lr, decay := float32(s.LR), float32(s.WeightDecay)
	if s.buffers == nil {
		for _, p := range params {
			descend(p.Data, p.Grad, lr, decay)
		}
		return
	}
	if len(params) != len(s.buffers) {
		panic(fmt.Sprintf("optim: step of %d parameters, made for %d", len(params), len(s.buffers)))
	}
	momentum := float32(s.Momentum)
	for i, p := range params {
		buffer := s.buffers[i].Data
		if !s.initialised {
			start(buffer, p.Data, p.Grad, lr, momentum, decay, s.Nesterov)
		} else {
			proceed(buffer, p.Data, p.Grad, lr, momentum, decay, s.Nesterov)
		}
	}
	s.initialised = true
}

// descend is a step without momentum.
func descend(data, grad []float32, lr, decay float32) {
	grad = grad[:len(data)]
	for i, w := range data {
		d := grad[i] + float32(decay*w)
		data[i] = w - float32(lr*d)
	}
}

// start is the first step with momentum: the buffer becomes the gradient itself.
func start(buffer, data, grad []float32, lr, momentum, decay float32, nesterov bool) {
	for i, w := range data {
		buffer[i] = grad[i] + float32(decay*w)
	}
	move(buffer, data, grad, lr, momentum, decay, nesterov)
}

// proceed is any further step with momentum.
func proceed(buffer, data, grad []float32, lr, momentum, decay float32, nesterov bool) {
	buffer, grad = buffer[:len(data)], grad[:len(data)]
	for i, w := range data {
		d := grad[i] + float32(decay*w)
		buffer[i] = float32(momentum*buffer[i]) + d
	}
	move(buffer, data, grad, lr, momentum, decay, nesterov)
}

// move moves the parameters along the buffer.
func move(buffer, data, grad []float32, lr, momentum, decay float32, nesterov bool) {
	buffer, grad = buffer[:len(data)], grad[:len(data)]
	if !nesterov {
		for i, v := range buffer {
			data[i] -= float32(lr * v)
		}
		return
	}
	for i, w := range data {
		d := grad[i] + float32(decay*w) + float32(momentum*buffer[i])
		data[i] = w - float32(lr*d)
	}
}
