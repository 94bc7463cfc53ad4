package optim

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// GradNorm returns the Euclidean norm of all gradients.
//
// It sums in float64, where squares of float32 are exact and cannot overflow. The order of the sum
// does not depend on the machine or the number of threads: the device's order within a parameter
// (see [device.Updates]), then the order of the parameters. On the CPU, the device's order is one
// block of a parameter after the other. So ranks with equal gradients have bit-identical norms. The
// norm is finite if all gradients are finite.
func GradNorm(d device.Updates, params []*nn.Param) float64 {
	sum := 0.0
	for _, p := range params {
		sum += d.SumSquares(p.Grad)
	}
	return math.Sqrt(sum)
}

// ClipScale returns the factor of torch.nn.utils.clip_grad_norm_ for gradients of the given norm:
// after the multiplication, their norm does not exceed most. The factor is at most 1. For an
// infinite norm it is 0, and for NaN it is NaN; the caller must check the norm. ClipScale panics
// unless most is above 0.
//
// The result is the gradScale of [Optimizer.Step], for gradients that are averaged over ranks.
func ClipScale(norm, most float64) float32 {
	if !(most > 0) {
		panic(fmt.Sprintf("optim: clip the norm of gradients to %v", most))
	}
	if scale := float32(most / (norm + device.ClipEps)); !(scale >= 1) {
		return scale
	}
	return 1
}
