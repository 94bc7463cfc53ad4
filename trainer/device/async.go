package device

import "math"

// Steps finishes optimizer steps without a host round trip: the device sums losses, checks whether
// loss and gradients are finite, clips gradients, and counts updates. The host reads the results
// later. So it can enqueue the next step before this step has finished.
type Steps interface {
	// NewStepDecision plans the decisions about steps with the given number of scalars, from 1 to
	// MaxScalars.
	NewStepDecision(scalars int) StepDecision
	// NewReading plans asynchronous copies to the host.
	NewReading() Reading
}

// MaxScalars is the maximum number of scalars of a step.
const MaxScalars = 16

// A StepDecision decides on the device whether each step updates the parameters (found_inf in
// PyTorch's grad scaler). In each step, the caller passes the losses of each micro-batch, then the
// sums of all ranks, then requests one decision, then the updates.
type StepDecision interface {
	// AddLoss adds the loss of a micro-batch to the step's loss: weight times the sum of rows, from
	// first to last on the CPU, divided by parts. If weight is 0, the micro-batch does not count.
	// AddLoss computes in float64 and writes the step's loss so far to loss, one Float32 element.
	AddLoss(loss, rows Tensor, parts int, weight float64)
	// Reduce sums the records of all ranks, in the order of the ranks. A record is the sum of the
	// squares of gradients and the scalars, of which the first is the loss, in Float64.
	Reduce(records Tensor)
	// Count sets the number of updates before the next one.
	Count(updates int64)
	// Decide decides whether to update: only if the norm of the gradients and the loss are finite. If
	// so, it counts the update and computes the factors of each group of elements, at most MaxGroups,
	// with the bits of [GroupFactors.At]. If maxNorm is not 0, GradScale clips the gradients to a norm
	// of at most maxNorm (see optim.ClipScale).
	Decide(maxNorm float64, groups []GroupFactors)
	// Update updates like [Updates], with a group's factors of the decision. It does nothing if the
	// step is skipped.
	Update(r Rule, a Arrays, group int)
	// Result returns the last decision: 1 if the parameters are updated, else 0; the norm in
	// float32; and the sums of the scalars.
	Result() Tensor
}

// MaxGroups is the maximum number of groups of elements with different factors.
const MaxGroups = 4

// GroupFactors holds the inputs from which the device computes the factors of a group.
type GroupFactors struct {
	// Factors holds the constant factors. The device sets First and GradScale.
	Factors Factors
	// BiasCorrected makes the device set Correction and Rate, for Adam, from the fields below.
	BiasCorrected    bool
	LR, Beta1, Beta2 float64
	// MaxUpdates is the maximum number of updates that the bias corrections use.
	MaxUpdates uint32
}

// At returns the factors of an update. It computes bias corrections in float64 and rounds to float32
// where PyTorch does. The first update is 1.
func (g GroupFactors) At(update int64, gradScale float32) Factors {
	f := g.Factors
	f.First, f.GradScale = update <= 1, gradScale
	if g.BiasCorrected {
		n := min(update, int64(g.MaxUpdates))
		f.Correction = float32(math.Sqrt(1 - Power(g.Beta2, n)))
		f.Rate = float32(-g.LR / (1 - Power(g.Beta1, n)))
	}
	return f
}

// Power returns base to the power of n, by repeated squaring. It uses only multiplications, so the
// result is bit-identical on all platforms.
func Power(base float64, n int64) float64 {
	out := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			out *= base
		}
		base *= base
	}
	return out
}

// ClipEps is the value that PyTorch adds to the norm of gradients before it divides by it.
const ClipEps = 1e-6

// A Reading is an asynchronous copy of a tensor to the host.
type Reading interface {
	// Begin starts to copy a Float32 tensor, after all preceding operations. It allocates memory if
	// the tensor is longer than those before.
	Begin(src Tensor)
	// Floats waits for the copy, but not for later operations. The result is valid until the next
	// Begin.
	Floats() []float32
}
