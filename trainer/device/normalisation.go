package device

// LayerNormEps is what torch.nn.LayerNorm adds to the variance by default.
const LayerNormEps = 1e-5

// Normalisation are the operations of layer normalisation over each row (Ba et al.
// 2016), as torch.nn.LayerNorm. Matrices are Whole.
type Normalisation interface {
	// LayerNorm is y = (x-mean)*rstd*w + b for each row, with the row's mean and
	// 1/sqrt(variance+LayerNormEps), which it keeps in mean and rstd. y is stored.
	LayerNorm(y Matrix, mean, rstd Tensor, x Matrix, w, b Tensor)
	// AddLayerNorm is sum = a + b, then LayerNorm of sum, where y may be b: a residual
	// connection with what follows it. y and b are stored, of one type.
	AddLayerNorm(y, sum Matrix, mean, rstd Tensor, a, b Matrix, w, shift Tensor)
	// LayerNormGrad writes, or with accumulate adds, the gradient of x to dx, which
	// may be dy unless it is added to. dy is stored.
	LayerNormGrad(dx, dy, x Matrix, w, mean, rstd Tensor, accumulate bool)
	// LayerNormParamGrad writes, or with accumulate adds, the gradients of w and b:
	// sums over the rows, in the order of [Dense.ColumnSum] for dy, which is stored.
	LayerNormParamGrad(dw, db Tensor, dy, x Matrix, mean, rstd Tensor, accumulate bool)
}
