package nn

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// updates is the optimizer of the tests, equal to torch.optim's. (Package trainer/optim depends on
// this package.)
type updates struct {
	device           device.Device
	params           []*Param
	average, squares []device.Tensor
	steps            int
}

func newUpdates(d device.Device, params []*Param) *updates {
	u := &updates{device: d, params: params}
	for _, p := range params {
		u.average = append(u.average, d.Alloc(device.Float32, p.Len()))
		u.squares = append(u.squares, d.Alloc(device.Float32, p.Len()))
	}
	return u
}

// norm returns the Euclidean norm of all gradients.
func (u *updates) norm() float64 {
	sum := 0.0
	for _, p := range u.params {
		sum += u.device.SumSquares(p.Grad)
	}
	return math.Sqrt(sum)
}

func (u *updates) sgd(f device.Factors) {
	f.First, f.GradScale = u.steps == 0, 1
	for i, p := range u.params {
		u.device.Update(device.RuleSGD, device.Arrays{Value: p.Data, Grad: p.Grad, State: [2]device.Tensor{u.average[i]}}, f)
	}
	u.steps++
}

type adamWOptions struct {
	LR, Beta1, Beta2, Eps float64
	Decay                 float64 `json:"weight_decay"`
	MaxNorm               float64 `json:"max_norm"`
}

// adamW clips gradients to MaxNorm and returns their norm before clipping.
func (u *updates) adamW(o adamWOptions) (norm float64) {
	u.steps++
	n := float64(u.steps)
	norm = u.norm()
	f := device.Factors{
		Beta1: float32(o.Beta1), Beta2: float32(o.Beta2), New1: float32(1 - o.Beta1), New2: float32(1 - o.Beta2),
		Keep: float32(1 - o.LR*o.Decay), Correction: float32(math.Sqrt(1 - math.Pow(o.Beta2, n))), Eps: float32(o.Eps),
		Rate: float32(-o.LR / (1 - math.Pow(o.Beta1, n))), GradScale: float32(min(1, o.MaxNorm/(norm+1e-6))),
	}
	for i, p := range u.params {
		u.device.Update(device.RuleAdam, device.Arrays{Value: p.Data, Grad: p.Grad, State: [2]device.Tensor{u.average[i], u.squares[i]}}, f)
	}
	return norm
}
