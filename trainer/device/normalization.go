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
	// LayerNormGrad stores the gradient of x in dx, or adds it with accumulate. Without accumulate,
	// dx may be dy. dy is a stored tensor.
	LayerNormGrad(dx, dy, x Matrix, w, mean, rstd Tensor, accumulate bool)
	// LayerNormParamGrad stores the gradients of w and b, or adds them with accumulate. It sums
	// over rows in the order of [Dense.ColumnSum] for dy, which is a stored tensor.
	LayerNormParamGrad(dw, db Tensor, dy, x Matrix, mean, rstd Tensor, accumulate bool)
}
