// Package optim updates the parameters of a model with their gradients.
//
// [SGD] and [Adam], in both its forms, implement the rules of torch.optim with the same names: the
// same order of operations, the same first step, hyper-parameters rounded to float32 once. Updates
// equal PyTorch's up to the rounding of one operation, because PyTorch uses fused multiply-adds and
// this package does not: a step is bit-identical on every CPU. The state can be saved and restored,
// and a restored optimizer continues bit for bit.
//
// [GradNorm] and [ClipScale] implement gradient clipping. The order of the sum does not depend on
// the machine. A [Schedule] computes the learning rate from the number of steps only, so resuming
// needs no schedule state. Steps and clipping allocate no memory.
//
// [Optimizer.SetDecaying] limits weight decay to some elements, like two parameter groups in
// PyTorch. The package has no other parameter groups and no AMSGrad. It does not implement gradient
// accumulation, and it writes no files: the owner of an optimizer stores its state.
package optim

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Optimizer is an update rule with its state.
type Optimizer interface {
	// Kind returns the rule's name, one of the constants of this package.
	Kind() string
	// Rate returns the learning rate of the next step.
	Rate() float64
	// SetRate sets the learning rate for the next and later steps. It must be finite and not
	// negative.
	SetRate(lr float64)
	// SetDecaying limits weight decay to the given ranges of elements of each parameter, in
	// ascending order. Without it, weight decay applies to all elements.
	SetDecaying(ranges [][]nn.Range)
	// Step updates Data of all parameters with their Grad times gradScale; 1 uses the gradients
	// unchanged. The parameters must be the optimizer's, in the same order. Step does not change
	// Grad.
	Step(params []*nn.Param, gradScale float32)
	// StepAsync enqueues Step on a [device.AsyncUpdater], with gradient clipping to the norm most
	// (0: no clipping). The device skips the update unless loss and gradients are finite. The
	// verdict holds the gradients' squares and the losses; it is the same in every step. The caller
	// must call CountStep for each update that was not skipped, before any other method except
	// SetRate and StepAsync.
	StepAsync(params []*nn.Param, v device.StepDecision, most float64)
	// CountStep reports that an update of StepAsync was not skipped.
	CountStep()
	// State returns the current state. On the host, the tensors' Data is the optimizer's own
	// memory: it changes at the next step.
	State() State
	// StateBy is like State, but reads arrays with the given function, one after another in the
	// order of the tensors.
	StateBy(Read) State
	// Restore copies the state of an optimizer of the same kind for the same parameters. If the
	// state does not match, it returns an error and changes nothing.
	Restore(State) error
}

// The kinds of optimizers.
const (
	KindSGD   = "sgd"
	KindAdam  = "adam"
	KindAdamW = "adamw"
)

// setting is a named hyper-parameter.
type setting struct {
	name  string
	value float64
}

// check returns an error if a value is negative, NaN, or out of the range of float32, in which
// parameters are updated.
func check(settings ...setting) error {
	for _, s := range settings {
		if !inFloat32(s.value) {
			return fmt.Errorf("%s is %v, want a number from 0 that float32 does not round to 0 or infinity", s.name, s.value)
		}
	}
	return nil
}

// inFloat32 reports whether v is 0, or a positive value that float32 does not round to 0 or
// infinity.
func inFloat32(v float64) bool {
	return v == 0 || float32(v) > 0 && v <= math.MaxFloat32
}
