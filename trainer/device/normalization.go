package device

// LayerNormEps is the default epsilon of torch.nn.LayerNorm, which is added to the variance.
const LayerNormEps = 1e-5

// Normalization contains the operations of layer normalization over each row (Ba et al., 2016), as
// in torch.nn.LayerNorm. Matrices are Whole.
type Normalization interface {
	// LayerNorm computes y = (x-mean)*rstd*w + b for each row. It stores the row's mean and
	// 1/sqrt(variance+LayerNormEps) in mean and rstd. y is a stored tensor.
	LayerNorm(y Matrix, mean, rstd Tensor, x Matrix, w, b Tensor)
	// AddLayerNorm computes sum = a + b and the LayerNorm of sum: a residual connection followed by
	// a layer normalization. y may be b. Both are stored tensors of the same type.
	AddLayerNorm(y, sum Matrix, mean, rstd Tensor, a, b Matrix, w, shift Tensor)
	// LayerNormBackward computes the gradients of a LayerNorm.
	LayerNormBackward(g LayerNormGradients)
}

// LayerNormGradients are the arguments of the backward pass of a LayerNorm.
type LayerNormGradients struct {
	// DX receives the gradient of X, or, with AddX, has it added. Without AddX, DX may be DY.
	DX   Matrix
	AddX bool
	// Copy, unless it is empty, receives the elements of DX, rounded to BFloat16.
	Copy Tensor
	// DW and DB receive the gradients of w and b, or, with Accumulate, have them added. Rows are
	// summed in the order of [Dense.ColumnSum] for DY.
	DW, DB     Tensor
	Accumulate bool
	// DY is the gradient of the output, a stored tensor. X and W are the arguments of the LayerNorm,
	// and Mean and RStd are its results.
	DY, X         Matrix
	W, Mean, RStd Tensor
}
