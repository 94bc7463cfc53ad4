package device

// Updates contains the operations of an optimizer.
type Updates interface {
	// SumSquares returns the sum of the squares of x's elements, in float64 and in an order that
	// depends only on the device, not on the number of threads. On the CPU, a block of 65,536
	// elements has 8 partial sums, with element i in sum i mod 8. Pairs of partial sums are added
	// by halves, first 4 to 7 to 0 to 3, and the sums of blocks in ascending order. The result is
	// not finite if an element is not finite. SumSquares waits for the preceding operations.
	SumSquares(x Tensor) float64
	// Scale computes y = s*x.
	Scale(y, x Tensor, s float32)
	// SGD updates value, and buffer unless it is empty, like torch.optim.SGD.
	SGD(value, grad, buffer Tensor, f SGDFactors)
	// Adam updates value, average, and squares like torch.optim.Adam and AdamW.
	Adam(value, grad, average, squares Tensor, f AdamFactors)
}

// SGDFactors holds the factors of a step of torch.optim.SGD, rounded in the same way.
type SGDFactors struct {
	LR        float32
	Momentum  float32 // no effect without a buffer
	Decay     float32 // L2 penalty: fraction of the value that is added to the gradient
	GradScale float32 // applied to gradients first: 1, or the clipping factor
	Nesterov  bool
	First     bool // sets the buffer to the gradient
}

// AdamFactors holds the factors of a step of torch.optim.Adam and AdamW, rounded in the same way.
type AdamFactors struct {
	Beta1, Beta2 float32 // decay rates of the averages
	New1, New2   float32 // 1-Beta1 and 1-Beta2
	Keep         float32 // factor of the value for decoupled weight decay
	Decay        float32 // L2 penalty: fraction of the value that is added to the gradient
	Correction   float32 // square root of the second bias correction
	Eps          float32
	Rate         float32 // negative learning rate divided by the first bias correction
	GradScale    float32 // applied to gradients first: 1, or the clipping factor
}
