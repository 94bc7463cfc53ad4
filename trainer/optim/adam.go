package optim

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Names of Adam's state, PyTorch's own; those of averages begin names that end
// in the parameter's.
const (
	averagePrefix = "exp_avg."
	squaresPrefix = "exp_avg_sq."
	stepName      = "step"
)

// lastStep is where the number of steps stays, as PyTorch's: float32 cannot
// count further. Bias corrections have long become 1 by then.
const lastStep = 1 << 24

// AdamOptions are the hyper-parameters of [Adam]. None has a default;
// PyTorch's are 1e-3, 0.9, 0.999, 1e-8, and a weight decay of 0 for Adam and of
// 0.01 for AdamW.
type AdamOptions struct {
	LR          float64 // learning rate, from 0
	Beta1       float64 // decay of the average of gradients, in [0, 1)
	Beta2       float64 // decay of the average of squared gradients, in [0, 1)
	Eps         float64 // added to the divisor; with 0, as in PyTorch, an element whose gradient was always 0 becomes NaN
	WeightDecay float64 // Adam: L2 penalty, added to gradients; AdamW: LR times this part of the value goes at each step
}

// Adam is torch.optim.Adam or torch.optim.AdamW (Kingma and Ba 2015, Loshchilov
// and Hutter 2019), which differ in their weight decay alone. The options may be
// changed between steps.
type Adam struct {
	AdamOptions

	decoupled bool     // AdamW
	tensors   []Tensor // two per parameter, average and squares, then the number of steps
}

// NewAdam returns torch.optim.Adam for the given parameters, with the limits
// that PyTorch sets. Values must be finite. All its memory is allocated here.
func NewAdam(params []*nn.Param, o AdamOptions) (*Adam, error) { return newAdam(params, o, false) }

// NewAdamW returns torch.optim.AdamW likewise.
func NewAdamW(params []*nn.Param, o AdamOptions) (*Adam, error) { return newAdam(params, o, true) }

func newAdam(params []*nn.Param, o AdamOptions, decoupled bool) (*Adam, error) {
	if err := check(setting{"learning rate", o.LR}, setting{"eps", o.Eps}, setting{"weight decay", o.WeightDecay}); err != nil {
		return nil, err
	}
	for _, b := range []setting{{"beta1", o.Beta1}, {"beta2", o.Beta2}} {
		if !(b.value >= 0 && b.value < 1) {
			return nil, fmt.Errorf("make an optimizer: %s is %v, want a number from 0 to below 1", b.name, b.value)
		}
	}
	a := &Adam{AdamOptions: o, decoupled: decoupled}
	for _, p := range params {
		for _, prefix := range []string{averagePrefix, squaresPrefix} {
			a.tensors = append(a.tensors, Tensor{prefix + p.Name, p.Shape, make([]float32, len(p.Data))})
		}
	}
	a.tensors = append(a.tensors, Tensor{stepName, nil, make([]float32, 1)})
	return a, nil
}

// Kind is [KindAdam] or [KindAdamW].
func (a *Adam) Kind() string {
	if a.decoupled {
		return KindAdamW
	}
	return KindAdam
}

// Rate is LR.
func (a *Adam) Rate() float64 { return a.LR }

// SetRate sets LR.
func (a *Adam) SetRate(lr float64) { a.LR = lr }

// steps is where the number of steps done stands in the state.
func (a *Adam) steps() *float32 { return &a.tensors[len(a.tensors)-1].Data[0] }

// State returns for each parameter "exp_avg." and "exp_avg_sq." with its name,
// and at the end "step", the number of steps done. Their Data are the
// optimizer's own memory: they change at the next step.
func (a *Adam) State() State { return State{a.Kind(), *a.steps() > 0, a.tensors} }

// Restore copies a state that an optimizer of the same kind for the same
// parameters had, with tensors in any order. If it is of another kind, or a
// tensor is missing, unknown or of another shape, or the number of steps is none,
// it returns an error and changes nothing.
func (a *Adam) Restore(from State) error {
	given, err := match(a.Kind(), a.tensors, from)
	if err != nil {
		return err
	}
	done := float64(given[stepName].Data[0])
	if !(done >= 0 && done <= lastStep) || done != math.Trunc(done) {
		return fmt.Errorf("restore optimizer: %q is %v, want a whole number from 0 to %d", stepName, done, lastStep)
	}
	if from.Initialised != (done > 0) {
		return fmt.Errorf("restore optimizer: %q is %v in a state with initialised %t", stepName, done, from.Initialised)
	}
	for _, t := range a.tensors {
		copy(t.Data, given[t.Name].Data)
	}
	return nil
}

// Step updates Data of all parameters from their Grad, which it leaves as they
// are. They must be those that the optimizer was made for, in the same order.
func (a *Adam) Step(params []*nn.Param) {
	if made := len(a.tensors) / 2; len(params) != made {
		panic(fmt.Sprintf("optim: step of %d parameters, made for %d", len(params), made))
	}
	done := a.steps()
	*done++ // and stays at lastStep
	f := a.factors(int64(*done))
	for i, p := range params {
		f.update(p.Data, p.Grad, a.tensors[2*i].Data, a.tensors[2*i+1].Data)
	}
}

// factors are the numbers that are the same for all elements of a step.
type factors struct {
	beta1, beta2 float32 // what stays of the averages
	new1, new2   float32 // 1-beta1 and 1-beta2
	keep         float32 // what decoupled weight decay leaves of the value
	decay        float32 // part of the value that is added to the gradient
	correction   float32 // root of the second bias correction
	eps          float32
	rate         float32 // minus the learning rate over the first bias correction
}

// factors are those of step n, the first being 1: computed in float64 and
// rounded to float32 where PyTorch does.
func (a *Adam) factors(n int64) factors {
	f := factors{
		beta1: float32(a.Beta1), beta2: float32(a.Beta2),
		new1: float32(1 - a.Beta1), new2: float32(1 - a.Beta2),
		keep:       1,
		correction: float32(math.Sqrt(1 - power(a.Beta2, n))),
		eps:        float32(a.Eps),
		rate:       float32(-a.LR / (1 - power(a.Beta1, n))),
	}
	if a.decoupled {
		f.keep = float32(1 - float64(a.LR*a.WeightDecay))
	} else {
		f.decay = float32(a.WeightDecay)
	}
	return f
}

// update is the step of one parameter. Conversions keep compilers from fusing.
func (f *factors) update(data, grad, average, squares []float32) {
	c := *f
	grad, average, squares = grad[:len(data)], average[:len(data)], squares[:len(data)]
	for i, w := range data {
		g := grad[i] + float32(c.decay*w)
		m := float32(c.beta1*average[i]) + float32(c.new1*g)
		v := float32(c.beta2*squares[i]) + float32(float32(c.new2*g)*g)
		average[i], squares[i] = m, v
		divisor := float32(float32(math.Sqrt(float64(v)))/c.correction) + c.eps
		data[i] = float32(c.keep*w) + float32(float32(c.rate*m)/divisor)
	}
}

// power is base to the n-th, by squaring: nothing but multiplications, so that
// it has the same bits everywhere.
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
