package device

// Updates contains the operations of an optimizer.
type Updates interface {
	// SumSquares returns the sum of the squares of x's elements, in float64 and in an order that
	// depends only on the device, not on the number of threads. On the CPU, a block of 65,536
	// elements has 8 partial sums, with element i in sum i mod 8. The upper half of the partial sums
	// is added to the lower half until one is left: first sum 4 to sum 0, 5 to 1, 6 to 2, and 7 to 3.
	// The sums of blocks are added in ascending order. The result is not finite if an element is not
	// finite. SumSquares waits for the preceding operations.
	SumSquares(x Tensor) float64
	// ChunkSquares computes, for each of the given number of equal chunks of x, the sum of the
	// squares with the bits of SumSquares. It sets the elements 0, pitch, 2*pitch, ... of the
	// Float64 tensor sums to them, or adds them. It does not wait.
	ChunkSquares(sums Tensor, pitch int, x Tensor, chunks int, add bool)
	// Scale computes y = s*x.
	Scale(y, x Tensor, s float32)
	// Normalize computes y = x/max(norm, eps), where norm is the Euclidean norm of x, with the bits
	// of SumSquares. It does not wait if tensors are not in host memory.
	Normalize(y, x Tensor, eps float32)
	// HasRule reports whether the device implements an update rule.
	HasRule(r Rule) bool
	// Update runs a step of a rule on each element of the arrays.
	Update(r Rule, a Arrays, f Factors)
}

// A Rule is the name of an elementwise update rule. Its formulas use the elements w of Value, g of
// Grad, and s and t of State, and the fields of [Factors].
type Rule string

// The rules compute, with d = GradScale*g + Decay*w:
const (
	// RuleSGD is torch.optim.SGD. Without State[0], w += Rate*d. Otherwise s = d if First is set,
	// else s = Beta1*s + d; then w += Rate*s, or w += Rate*(d + Beta1*s) with Nesterov.
	RuleSGD Rule = "sgd"
	// RuleAdam is torch.optim.Adam and AdamW: s = Beta1*s + New1*d, t = Beta2*t + New2*d*d,
	// w = Keep*w + Rate*s/(sqrt(t)/Correction + Eps).
	RuleAdam Rule = "adam"
	// RuleLion is Lion (Chen et al. 2023) without Decay: w = Keep*w + Rate*sign(Beta1*s + New1*d),
	// s = Beta2*s + New2*d.
	RuleLion Rule = "lion"
	// RuleMuonMomentum is the first part of Muon, before the orthogonalization, without Decay:
	// s = Beta1*s + New1*d, w = New1*d + Beta1*s. It does not read w.
	RuleMuonMomentum Rule = "muon_momentum"
	// RuleMuonStep is the last part of Muon: w = Keep*w + Rate*g.
	RuleMuonStep Rule = "muon_step"
)

// Rules returns all rules, in no particular order.
func Rules() []Rule { return []Rule{RuleSGD, RuleAdam, RuleLion, RuleMuonMomentum, RuleMuonStep} }

// Arrays holds the tensors of an update. They have the same length. State that the rule does not
// use is empty.
type Arrays struct {
	Value, Grad Tensor
	State       [2]Tensor
	// Rounded, unless it is empty, receives the new elements of Value, rounded to BFloat16.
	Rounded Tensor
}

// Slice returns the elements from first to before end of all tensors that are not empty.
func (a Arrays) Slice(first, end int) Arrays {
	for _, t := range []*Tensor{&a.Value, &a.Grad, &a.State[0], &a.State[1], &a.Rounded} {
		if t.Len() > 0 {
			*t = t.Slice(first, end)
		}
	}
	return a
}

// Factors holds the factors of a step, rounded like PyTorch's. They are the same for all elements.
// Each rule uses some of them.
type Factors struct {
	Rate         float32 // negative learning rate; for Adam, divided by the first bias correction
	Beta1, Beta2 float32 // decay rates of the state; for SGD, Beta1 is the momentum
	New1, New2   float32 // 1-Beta1 and 1-Beta2
	Keep         float32 // factor of the value for decoupled weight decay
	Decay        float32 // L2 penalty: fraction of the value that is added to the gradient
	Correction   float32 // square root of the second bias correction
	Eps          float32
	GradScale    float32 // applied to gradients first: 1, or the clipping factor
	Nesterov     bool
	First        bool // first step
}
