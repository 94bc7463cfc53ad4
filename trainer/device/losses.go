package device

// Losses contains the losses and metrics of models. Matrices are Whole.
type Losses interface {
	// CrossEntropy stores the negative log-likelihood of each row's label (0 to Cols-1) in losses.
	// If scale is not 0, it also replaces logits by their gradient times scale. Logits is a stored
	// tensor.
	CrossEntropy(losses Tensor, logits Matrix, labels Tensor, scale float32)
	// SquaredError stores the sum of the squared differences of x and targets of each row in
	// losses. If scale is not 0, it also replaces x by the gradient of that sum times scale.
	SquaredError(losses Tensor, x Matrix, targets Tensor, scale float32)
	// ArgMax stores the column of each row's largest element, the first of equal ones, in chosen,
	// an Int32 tensor. For a row with NaN the result is any column. x is a stored tensor.
	ArgMax(chosen Tensor, x Matrix)
	// CountEqual returns the number of positions where two Int32 tensors are equal. It waits for
	// the preceding operations.
	CountEqual(a, b Tensor) int
}
