package optim

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// clipEps is what PyTorch adds to the norm before it divides by it.
const clipEps = 1e-6

// GradNorm returns the Euclidean norm of all gradients taken as one vector.
//
// It is summed in float64, where squares of float32 are exact and cannot
// overflow, in one order whatever the processor: within a parameter, element i
// goes to the partial sum i mod 8; the eight are added as ((0+4)+(2+6)) +
// ((1+5)+(3+7)); these sums are added over parameters in their order. Ranks with
// the same gradients so have the same norm, bit for bit.
func GradNorm(params []*nn.Param) float64 {
	sum := 0.0
	for _, p := range params {
		sum += sumSquares(p.Grad)
	}
	return math.Sqrt(sum)
}

// sumSquares is the sum of squares of one parameter's gradient.
func sumSquares(grad []float32) float64 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float64
	for ; len(grad) >= 8; grad = grad[8:] {
		s0 += float64(grad[0]) * float64(grad[0])
		s1 += float64(grad[1]) * float64(grad[1])
		s2 += float64(grad[2]) * float64(grad[2])
		s3 += float64(grad[3]) * float64(grad[3])
		s4 += float64(grad[4]) * float64(grad[4])
		s5 += float64(grad[5]) * float64(grad[5])
		s6 += float64(grad[6]) * float64(grad[6])
		s7 += float64(grad[7]) * float64(grad[7])
	}
	s := [8]float64{s0, s1, s2, s3, s4, s5, s6, s7}
	for i, g := range grad {
		s[i] += float64(g) * float64(g)
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// ClipGradNorm is torch.nn.utils.clip_grad_norm_: if the norm of all gradients
// ([GradNorm]) is above most, it scales them so that it is most, and in any case
// returns the norm before. As in PyTorch, an infinite norm leaves 0 and NaN, a
// norm that is not a number NaN alone: the caller looks at the norm. It panics
// unless most is above 0.
//
// It comes after gradients have been averaged over ranks and before the step.
func ClipGradNorm(params []*nn.Param, most float64) float64 {
	if !(most > 0) {
		panic(fmt.Sprintf("optim: clip the norm of gradients to %v", most))
	}
	norm := GradNorm(params)
	scale := float32(most / (norm + clipEps))
	if scale >= 1 {
		return norm
	}
	for _, p := range params {
		for i := range p.Grad {
			p.Grad[i] *= scale
		}
	}
	return norm
}
