package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Names of Adam's state, equal to PyTorch's. The names of the moving averages are prefixes; the
// parameter's name follows.
const (
	averagePrefix = "exp_avg."
	squaresPrefix = "exp_avg_sq."
	stepName      = "step"
)

// lastStep is the value at which the step counter stops, like PyTorch's: float32 cannot count
// further. The bias corrections have long been 1 by then.
const lastStep = 1 << 24

// AdamOptions are the hyper-parameters of [Adam]. They have no defaults; PyTorch's are 1e-3, 0.9,
// 0.999, 1e-8, and a weight decay of 0 for Adam and 0.01 for AdamW.
type AdamOptions struct {
	LR          float64 // learning rate, 0 or more
	Beta1       float64 // decay of the average of gradients, in [0, 1)
	Beta2       float64 // decay of the average of squared gradients, in [0, 1)
	Eps         float64 // added to the divisor; with 0, as in PyTorch, an element whose gradient was always 0 becomes NaN
	WeightDecay float64 // Adam: L2 penalty, added to gradients; AdamW: each step subtracts LR times this fraction of the value
}

// Adam is torch.optim.Adam or torch.optim.AdamW (Kingma and Ba 2015, Loshchilov and Hutter 2019),
// which differ only in their weight decay. The options may be changed between steps.
type Adam struct {
	AdamOptions

	device           device.Device
	decoupled        bool // AdamW
	whole, segments  []segment
	average, squares []buffer            // per parameter
	steps            int64               // completed steps, at most lastStep
	countedBy        device.StepDecision // the verdict to which steps was passed
}

// NewAdam returns torch.optim.Adam for the given parameters, which are on the device, with
// PyTorch's limits for the options. Values must be finite. It allocates all of the optimizer's
// memory.
func NewAdam(d device.Device, params []*nn.Param, o AdamOptions) (*Adam, error) {
	return newAdam(d, params, o, false)
}

// NewAdamW returns torch.optim.AdamW. See [NewAdam] for the arguments.
func NewAdamW(d device.Device, params []*nn.Param, o AdamOptions) (*Adam, error) {
	return newAdam(d, params, o, true)
}

func newAdam(d device.Device, params []*nn.Param, o AdamOptions, decoupled bool) (*Adam, error) {
	if err := check(setting{"learning rate", o.LR}, setting{"eps", o.Eps}, setting{"weight decay", o.WeightDecay}); err != nil {
		return nil, err
	}
	for _, b := range []setting{{"beta1", o.Beta1}, {"beta2", o.Beta2}} {
		if !inFloat32(b.value) || float32(b.value) >= 1 {
			return nil, fmt.Errorf("%s is %v, want a number from 0 to below 1 that float32 does not round to 0 or 1", b.name, b.value)
		}
	}
	whole := wholeParams(params)
	return &Adam{AdamOptions: o, device: d, decoupled: decoupled, whole: whole, segments: whole,
		average: newBuffers(d, averagePrefix, params), squares: newBuffers(d, squaresPrefix, params)}, nil
}

// Kind returns [KindAdam] or [KindAdamW].
func (a *Adam) Kind() string {
	if a.decoupled {
		return KindAdamW
	}
	return KindAdam
}

// Rate returns LR.
func (a *Adam) Rate() float64 { return a.LR }

// SetRate sets LR.
func (a *Adam) SetRate(lr float64) { a.LR = lr }

// SetDecaying limits weight decay to ranges of the parameters' elements.
func (a *Adam) SetDecaying(ranges [][]nn.Range) { a.segments = splitByDecay(a.whole, ranges) }

// State returns for each parameter "exp_avg." and "exp_avg_sq." with its name, and at the end
// "step", the number of completed steps. On the host, the Data of the averages is the optimizer's
// own memory: it changes at the next step.
func (a *Adam) State() State { return a.StateBy(defaultRead(a.device)) }

// StateBy is like State, but reads arrays with read.
func (a *Adam) StateBy(read Read) State {
	var list []Tensor
	for i := range a.average {
		list = append(list, a.average[i].tensor(read), a.squares[i].tensor(read))
	}
	return State{a.Kind(), a.steps > 0, append(list, Tensor{stepName, nil, []float32{float32(a.steps)}})}
}

// Restore copies the state of an optimizer of the same kind for the same parameters, with tensors
// in any order. It returns an error and changes nothing if the kind differs, if a tensor is
// missing, unknown, or has a different shape, or if the number of steps is invalid.
func (a *Adam) Restore(from State) error {
	own := append(slices.Concat(a.average, a.squares), buffer{stepName, nil, device.Host(make([]float32, 1))})
	given, err := match(a.Kind(), own, from)
	if err != nil {
		return err
	}
	done := float64(given[stepName].Data[0])
	if !(done >= 0 && done <= lastStep) || done != math.Trunc(done) {
		return fmt.Errorf("restore optimizer: %q is %v, want an integer from 0 to %d", stepName, done, lastStep)
	}
	if from.Initialized != (done > 0) {
		return fmt.Errorf("restore optimizer: %q is %v in a state with initialized %t", stepName, done, from.Initialized)
	}
	for _, b := range slices.Concat(a.average, a.squares) {
		a.device.Write(b.data, given[b.name].Data)
	}
	a.steps, a.countedBy = int64(done), nil
	return nil
}

// Step updates Data of all parameters with their Grad times gradScale.
func (a *Adam) Step(params []*nn.Param, gradScale float32) {
	a.checkParams(params)
	a.CountStep()
	a.countedBy = nil
	f := a.factors(a.steps)
	f.GradScale = gradScale
	plain := f // without weight decay
	plain.Keep, plain.Decay = 1, 0
	for _, s := range a.segments {
		factors := f
		if !s.decays {
			factors = plain
		}
		value, grad, average, squares := a.tensors(s, params[s.param])
		a.device.Adam(value, grad, average, squares, factors)
	}
}

// tensors returns the tensors that the update of a segment of parameter p reads and writes.
func (a *Adam) tensors(s segment, p *nn.Param) (value, grad, average, squares device.Tensor) {
	return p.Data.Slice(s.first, s.end), p.Grad.Slice(s.first, s.end),
		a.average[s.param].data.Slice(s.first, s.end), a.squares[s.param].data.Slice(s.first, s.end)
}

func (a *Adam) checkParams(params []*nn.Param) {
	if len(params) != len(a.average) {
		panic(fmt.Sprintf("optim: step of %d parameters, made for %d", len(params), len(a.average)))
	}
}

// StepAsync enqueues Step on the device, which skips the update unless loss and gradients are
// finite.
func (a *Adam) StepAsync(params []*nn.Param, v device.StepDecision, most float64) {
	a.checkParams(params)
	if a.countedBy != v {
		v.Count(a.steps)
		a.countedBy = v
	}
	v.DecideAdam(most, device.AdamRule{LR: a.LR, Beta1: a.Beta1, Beta2: a.Beta2, MaxUpdates: lastStep, Factors: a.factors(1)})
	for _, s := range a.segments {
		value, grad, average, squares := a.tensors(s, params[s.param])
		v.Adam(value, grad, average, squares, s.decays)
	}
}

// CountStep counts a step.
func (a *Adam) CountStep() { a.steps = min(a.steps+1, lastStep) }

// factors returns the factors of step n, where the first step is 1. It computes them in float64 and
// rounds to float32 where PyTorch does.
func (a *Adam) factors(n int64) device.AdamFactors {
	f := device.AdamFactors{
		Beta1: float32(a.Beta1), Beta2: float32(a.Beta2),
		New1: float32(1 - a.Beta1), New2: float32(1 - a.Beta2),
		Keep:       1,
		Correction: float32(math.Sqrt(1 - power(a.Beta2, n))),
		Eps:        float32(a.Eps),
		Rate:       float32(-a.LR / (1 - power(a.Beta1, n))),
	}
	if a.decoupled {
		f.Keep = float32(1 - float64(a.LR*a.WeightDecay))
	} else {
		f.Decay = float32(a.WeightDecay)
	}
	return f
}

// power returns base to the power of n, by repeated squaring. It uses only multiplications, so the
// result is bit-identical on all platforms.
func power(base float64, n int64) float64 {
	out := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			out *= base
		}
		base *= base
	}
	return out
}
