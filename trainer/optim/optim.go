// Package optim updates the parameters of a model from their gradients.
//
// [SGD], and [Adam] in both its forms, are the rules of torch.optim of the same
// names: the same order of operations, the same first step, hyper-parameters
// rounded to float32 once. Updates equal PyTorch's up to the rounding of one
// operation, since PyTorch fuses multiplications with additions and this package
// never does: a step gives the same bits on every processor. Their state can be
// saved and restored, and a restored optimizer continues bit for bit.
//
// [GradNorm] and [ClipScale] bound the gradients of a step, with one order of
// summation whatever the machine. A [Schedule] names the learning rate of each step from
// nothing but its number, so that resuming needs no state of it. No step and no
// clipping allocates memory.
//
// [Optimizer.SetDecaying] limits weight decay to some elements, as two parameter groups of
// PyTorch do. There are no other parameter groups and no AMSGrad. The package does not
// accumulate the gradients of several batches, and it does not write files: the owner of
// an optimizer stores its state.
package optim

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Optimizer is an update rule with its state.
type Optimizer interface {
	// Kind is the rule's name, one of the constants of this package.
	Kind() string
	// Rate is the learning rate of the next step.
	Rate() float64
	// SetRate changes the learning rate, from the next step on. It must be finite
	// and not negative.
	SetRate(lr float64)
	// SetDecaying limits weight decay to the given ranges of elements of each parameter, in
	// ascending order. Without it, weight decay applies to all elements.
	SetDecaying(ranges [][]nn.Range)
	// Step updates Data of all parameters from their Grad times gradScale, where 1
	// leaves them as they are. They must be those that the optimizer was made for,
	// in the same order. Grad itself does not change.
	Step(params []*nn.Param, gradScale float32)
	// StepLater is Step on a [device.Late], with what clips the norm of gradients to most
	// (0: nothing) and if the verdict is for it. The verdict has the gradients' squares and
	// the losses; it is the same in every step. Taken must be called for each such update
	// that was made, before anything else but SetRate and StepLater.
	StepLater(params []*nn.Param, v device.Verdict, most float64)
	// Taken says that an update of StepLater was made.
	Taken()
	// State returns the present state. On the host the tensors' Data are the
	// optimizer's own memory: they change at the next step.
	State() State
	// StateBy is State with arrays that are read as the caller says, one after another in
	// the order of the tensors.
	StateBy(Read) State
	// Restore copies a state that an optimizer of the same kind for the same
	// parameters had. If it is not one, it returns an error and changes nothing.
	Restore(State) error
}

// The kinds of optimizers.
const (
	KindSGD   = "sgd"
	KindAdam  = "adam"
	KindAdamW = "adamw"
)

// setting is a hyper-parameter by name.
type setting struct {
	name  string
	value float64
}

// check refuses what is negative, not a number or beyond float32, in which
// parameters are updated.
func check(settings ...setting) error {
	for _, s := range settings {
		if !inFloat32(s.value) {
			return fmt.Errorf("make an optimizer: %s is %v, want a number from 0 that float32 does not round to 0 or infinity", s.name, s.value)
		}
	}
	return nil
}

// inFloat32 reports whether v is 0, or a number above it that float32 does not round
// to 0 or infinity.
func inFloat32(v float64) bool {
	return v == 0 || float32(v) > 0 && v <= math.MaxFloat32
}
