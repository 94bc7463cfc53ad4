package device

// Updates are what an optimiser does.
type Updates interface {
	// SumSquares is the sum of the squares of x's elements, in float64 and in one
	// order: the device's, the same for every number of threads. On the processor,
	// blocks of 65536 elements have 8 partial sums each, element i being in sum i mod
	// 8; these are added by halves, 4 to 7 to 0 to 3 first, and those of blocks in
	// rising order. It is not finite if one of the elements is not. It waits for the
	// operations before it.
	SumSquares(x Tensor) float64
	// Scale is y = s*x.
	Scale(y, x Tensor, s float32)
	// SGD updates value, and buffer unless that is empty, as torch.optim.SGD.
	SGD(value, grad, buffer Tensor, f SGDFactors)
	// Adam updates value, average and squares as torch.optim.Adam and AdamW.
	Adam(value, grad, average, squares Tensor, f AdamFactors)
}

// SGDFactors are the numbers of a step of torch.optim.SGD, rounded as there.
type SGDFactors struct {
	LR        float32
	Momentum  float32 // without effect where there is no buffer
	Decay     float32 // part of the value that is added to the gradient
	GradScale float32 // multiplies gradients before all else: 1, or what clips them
	Nesterov  bool
	First     bool // the buffer becomes the gradient itself
}

// AdamFactors are the numbers of a step of torch.optim.Adam and AdamW, rounded as
// there.
type AdamFactors struct {
	Beta1, Beta2 float32 // what stays of the averages
	New1, New2   float32 // 1-Beta1 and 1-Beta2
	Keep         float32 // what decoupled weight decay leaves of the value
	Decay        float32 // part of the value that is added to the gradient
	Correction   float32 // root of the second bias correction
	Eps          float32
	Rate         float32 // minus the learning rate over the first bias correction
	GradScale    float32 // multiplies gradients before all else: 1, or what clips them
}
