// Package optim updates the parameters of a model with their gradients.
//
// [New] returns an optimizer by its kind. The kinds "sgd", "adam", and "adamw" implement the rules of
// torch.optim with the same names: the same order of operations, the same first step,
// hyper-parameters rounded to float32 once. Updates equal PyTorch's up to the rounding of one
// operation, because PyTorch uses fused multiply-adds and this package does not: a step is
// bit-identical on every CPU. The state can be saved and restored, and a restored optimizer continues
// bit for bit.
//
// The kind "lion" is Lion (Chen et al. 2023). The kind "muon" is Muon (Jordan et al. 2024) for the
// weights of hidden layers and AdamW for the other parameters. It needs whole tensors, which ranks do
// not have if they shard the optimizer's state.
//
// Optimizers see tensors: the pieces of an array ([nn.Piece]) give the parameter, the shape, and the
// offset of its elements. A [Group] selects parameters with different settings, like a parameter
// group in PyTorch.
//
// An elementwise rule of this package only computes the factors of a step. The device computes the
// update ([device.Rule]). To add a rule, see "Where to add things" in ARCHITECTURE.md.
//
// [GradNorm] and [ClipScale] implement gradient clipping. The order of the sum does not depend on
// the machine. A [Schedule] computes the learning rate from the number of steps only, so resuming
// needs no schedule state. Steps and clipping allocate no memory.
//
// The package has no AMSGrad. It does not implement gradient accumulation, and it writes no files:
// the owner of an optimizer stores its state.
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
	// SetGroups sets the groups of parameters with different settings. The first group that selects
	// a parameter applies to it. Parameters that no group selects have the optimizer's settings.
	SetGroups(groups ...Group)
	// Step updates Data of all parameters with their Grad times gradScale; 1 uses the gradients
	// unchanged. The parameters must be the optimizer's, in the same order. Step does not change
	// Grad.
	Step(params []*nn.Param, gradScale float32)
	// StepAsync enqueues Step on the device, with gradient clipping to the norm maxNorm
	// (0: no clipping). The device skips the update unless loss and gradients are finite. The
	// decision holds the gradients' squares and the losses; it is the same in every step. The caller
	// must call CountStep for each update that was not skipped, before any other method except
	// SetRate and StepAsync.
	StepAsync(params []*nn.Param, d device.StepDecision, maxNorm float64)
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
	KindLion  = "lion"
	KindMuon  = "muon"
)

// Options are the hyper-parameters of an optimizer. They have no defaults. A kind ignores the fields
// that it does not use.
type Options struct {
	Kind        string  // one of the constants of this package
	LR          float64 // learning rate, 0 or more
	Momentum    float64 // SGD: fraction of the last update that is added to the next, 0 is plain SGD; Muon: decay rate of the average of gradients
	Nesterov    bool    // SGD: Nesterov momentum
	Beta1       float64 // Adam, and AdamW of Muon: decay rate of the average of gradients, in [0, 1); Lion: weight of the average in the update
	Beta2       float64 // Adam, and AdamW of Muon: decay rate of the average of squared gradients, in [0, 1); Lion: decay rate of the average of gradients
	Eps         float64 // Adam, and AdamW of Muon: term in the divisor; with 0, as in PyTorch, an element whose gradient was always 0 becomes NaN
	WeightDecay float64 // SGD and Adam: L2 penalty, added to gradients; others: fraction of the value that each step subtracts, times LR
}

// A Group is a set of parameters with different settings than the optimizer's.
type Group struct {
	Selects     func(*nn.Param) bool
	WeightDecay float64
}

// maxGroups is the maximum number of groups of an optimizer.
const maxGroups = device.MaxGroups - 1

// New returns an optimizer for the given parameters, which are on the device. It returns an error if
// the kind is unknown, if the device lacks its rule, or if an option is not finite or outside the
// limits of PyTorch. It allocates all of the optimizer's memory.
func New(d device.Device, params []*nn.Param, o Options) (Optimizer, error) {
	if o.Kind == KindMuon {
		return newMuon(d, params, o)
	}
	r, ok := rules[o.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of optimizer %q", o.Kind)
	}
	return newElementwise(d, params, o, r)
}

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

// checkBetas returns an error unless beta1 and beta2 are in [0, 1), also in float32.
func (o *Options) checkBetas() error {
	for _, b := range []setting{{"beta1", o.Beta1}, {"beta2", o.Beta2}} {
		if !inFloat32(b.value) || float32(b.value) >= 1 {
			return fmt.Errorf("%s is %v, want a number from 0 to below 1 that float32 does not round to 0 or 1", b.name, b.value)
		}
	}
	return nil
}

// inFloat32 reports whether v is 0, or a positive value that float32 does not round to 0 or
// infinity.
func inFloat32(v float64) bool {
	return v == 0 || float32(v) > 0 && v <= math.MaxFloat32
}
