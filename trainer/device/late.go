package device

// Late is a Device that needs no answer of the host within a step: it looks by itself
// whether loss and gradients are finite, clips these and counts updates, and the host
// learns later how it went. So it can be asked for the next step before it has done this
// one.
type Late interface {
	Device
	// NewVerdict plans verdicts on steps whose gradients are in so many parts.
	NewVerdict(parts int) Verdict
	// NewReading plans copies to the host that are not waited for.
	NewReading() Reading
}

// Verdict is what a device finds about one step after another. In each it is asked for
// the parts' squares and the losses, then for one decision, then for the updates.
type Verdict interface {
	// Squares takes the sum of the squares of a part of the gradients, with the bits of
	// SumSquares.
	Squares(part int, grad Tensor)
	// Losses takes losses that must be finite.
	Losses(rows Tensor)
	// Count says how many updates were made before the next one.
	Count(updates int64)
	// DecideSGD decides whether the update is made: if the norm of gradients and all
	// losses are finite. Then it counts it, and computes its factors: f with First for
	// the first update, and with what clips gradients to a norm of at most most, unless
	// that is 0 (see optim.ClipScale).
	DecideSGD(most float64, f SGDFactors)
	// DecideAdam is likewise, with the bits of package optim.
	DecideAdam(most float64, r AdamRule)
	// SGD and Adam update as those of [Updates], with the factors of the decision. If decays
	// is false, they leave out weight decay. They do nothing if the decision was against
	// the update.
	SGD(value, grad, buffer Tensor, decays bool)
	Adam(value, grad, average, squares Tensor, decays bool)
	// Told is two numbers of the last decision: 1 if the update is made, else 0; and the
	// norm, in float32.
	Told() Tensor
}

// AdamRule is what the factors of an update are computed from where the device counts.
type AdamRule struct {
	LR, Beta1, Beta2 float64
	// Most is where the number of updates stays, for the corrections of bias.
	Most uint32
	// Factors are those that do not depend on it: Correction, Rate and GradScale are the
	// device's.
	Factors AdamFactors
}

// Reading is a copy of a tensor on the host.
type Reading interface {
	// Begin begins to copy a Float32 tensor, after all operations that were asked for
	// before. It gets memory where this tensor is longer than those before.
	Begin(src Tensor)
	// Floats waits for the copy, but not for what was asked for after it. It is the
	// reading's own memory, until the next Begin.
	Floats() []float32
}
