package optim

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// clipEps is what PyTorch adds to the norm before it divides by it.
const clipEps = 1e-6

// GradNorm returns the Euclidean norm of all gradients taken as one vector.
//
// It is summed in float64, where squares of float32 are exact and cannot
// overflow, in one order whatever the machine and its threads: that of the device
// within a parameter (see [device.Updates]), then over parameters in their order. On
// the processor, that is blocks of a parameter one after the other. Ranks with
// the same gradients so have the same norm, bit for bit. It is finite if all
// gradients are.
func GradNorm(d device.Updates, params []*nn.Param) float64 {
	sum := 0.0
	for _, p := range params {
		sum += d.SumSquares(p.Grad)
	}
	return math.Sqrt(sum)
}

// ClipScale is what torch.nn.utils.clip_grad_norm_ multiplies gradients of the
// given norm by, so that it is at most most: 1 if it is already. Of an infinite norm
// it is 0, of one that is not a number NaN: the caller looks at the norm. It panics
// unless most is above 0.
//
// It is for gradients that have been averaged over ranks, as [Optimizer.Step]'s
// gradScale.
func ClipScale(norm, most float64) float32 {
	if !(most > 0) {
		panic(fmt.Sprintf("optim: clip the norm of gradients to %v", most))
	}
	if scale := float32(most / (norm + clipEps)); !(scale >= 1) {
		return scale
	}
	return 1
}
