package device

// An AsyncUpdater is a Device that finishes a step without a host round trip: it checks whether loss
// and gradients are finite, clips gradients, and counts updates. The host reads the results later.
// So the host can enqueue the next step before this step has finished.
type AsyncUpdater interface {
	Device
	// NewStepDecision plans the decisions about steps whose gradients are in the given number of
	// parts.
	NewStepDecision(parts int) StepDecision
	// NewReading plans asynchronous copies to the host.
	NewReading() Reading
}

// A StepDecision decides on the device whether each step updates the parameters (found_inf in
// PyTorch's grad scaler). In each step, the caller passes the gradients and the losses, then
// requests one decision, then the updates.
type StepDecision interface {
	// Squares computes the sum of the squares of a part of the gradients, with the bits of
	// SumSquares.
	Squares(part int, grad Tensor)
	// Losses passes losses, which must be finite.
	Losses(rows Tensor)
	// Count sets the number of updates before the next one.
	Count(updates int64)
	// DecideSGD decides whether to update: only if the norm of the gradients and all losses are
	// finite. If so, it counts the update and computes its factors: f, with First for the first
	// update. If most is not 0, the factors also clip the gradients to a norm of at most most (see
	// optim.ClipScale).
	DecideSGD(most float64, f SGDFactors)
	// DecideAdam decides like DecideSGD and computes the factors of Adam, with the bits of package
	// optim.
	DecideAdam(most float64, r AdamRule)
	// SGD and Adam update like the methods of [Updates], with the factors of the decision. If
	// decays is false, they omit weight decay. They do nothing if the step is skipped.
	SGD(value, grad, buffer Tensor, decays bool)
	Adam(value, grad, average, squares Tensor, decays bool)
	// Result returns two elements with the last decision: 1 if the parameters are updated, else 0;
	// and the norm in float32.
	Result() Tensor
}

// AdamRule holds the inputs from which the device computes the factors of an update.
type AdamRule struct {
	LR, Beta1, Beta2 float64
	// MaxUpdates is the maximum number of updates that the bias corrections use.
	MaxUpdates uint32
	// Factors holds the constant factors. The device sets Correction, Rate, and GradScale.
	Factors AdamFactors
}

// A Reading is an asynchronous copy of a tensor to the host.
type Reading interface {
	// Begin starts to copy a Float32 tensor, after all preceding operations. It allocates memory if
	// the tensor is longer than those before.
	Begin(src Tensor)
	// Floats waits for the copy, but not for later operations. The result is valid until the next
	// Begin.
	Floats() []float32
}
