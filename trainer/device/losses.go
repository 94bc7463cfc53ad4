package device

// Losses are the ends of models. Matrices are Whole.
type Losses interface {
	// CrossEntropy writes to losses, for each row of logits, the negative logarithm
	// of the softmax probability of its label (0 to Cols-1). Unless scale is 0 it
	// also replaces logits by their gradient, times scale. Logits are stored.
	CrossEntropy(losses Tensor, logits Matrix, labels Tensor, scale float32)
	// SquaredError writes to losses, for each row, the sum of the squared
	// differences of x and targets. Unless scale is 0 it also replaces x by the
	// gradient of that sum, times scale.
	SquaredError(losses Tensor, x Matrix, targets Tensor, scale float32)
	// ArgMax writes to chosen, an Int32 tensor, the column of each row's largest
	// element, the first of equal ones; of a row with NaN, any column. x is stored.
	ArgMax(chosen Tensor, x Matrix)
	// CountEqual is the number of places in which two Int32 tensors agree. It waits
	// for the operations before it.
	CountEqual(a, b Tensor) int
}
