package device

// Precision is the precision of matrix multiplications. All other operations use float32, except
// for the type of stored results: see Device.Stored.
type Precision uint8

// The precisions differ in the type of the operands.
const (
	// FP32 uses float32 operands, products, and sums.
	FP32 Precision = iota
	// BF16 rounds both operands to bfloat16 and accumulates in float32.
	BF16
)

// An Activation is an elementwise function of a layer's outputs.
type Activation uint8

// The activations match torch.nn.functional.
const (
	Identity Activation = iota
	ReLU                // max(x, 0); NaN stays NaN
	Tanh
	GELU // gelu with approximate="tanh", as in GPT-2
)

// A Product is a matrix multiplication C = f(A·B + start), where start is zero, C, or a bias for
// each row. With BF16, A and B are stored tensors with contiguous rows or columns, and C and Pre
// are stored also. If C is BFloat16, the bias is stored also, and a Float32 bias is rounded.
type Product struct {
	// C is m x n with contiguous rows. A is m x k and B is k x n, with any strides.
	C, A, B Matrix
	// Accumulate adds the product to C, and the sums to ColumnSum. It excludes Bias and Activation.
	Accumulate bool
	// Bias has n elements, which are added to each row. It is optional.
	Bias Tensor
	// Activation is f. Unless it is Identity, Pre receives A·B + Bias, and C receives f of it. Pre
	// and C may be the same matrix. Both are Whole.
	Activation Activation
	Pre        Matrix
	// Gradient computes C = A·B * f'(Pre) instead, for GELU only. A·B is the gradient of the
	// activation's output and Pre its input. Gradient excludes Bias and Accumulate, and C must not
	// be Pre.
	Gradient bool
	// ColumnSum receives the sum over the rows of B, as from [Dense.ColumnSum]: the gradient of a
	// bias if C is the gradient of a weight. It is optional, needs a B with contiguous rows, and
	// excludes Bias and Activation. If B is BFloat16, the order of the sums may be a different one.
	ColumnSum Tensor
	Precision Precision
}

// Dense contains the operations of dense layers.
type Dense interface {
	// MatMul computes a matrix multiplication. The order of the sum of each element is fixed.
	MatMul(p Product)
	// ColumnSum stores the sum over the rows of x in dst, or adds it with accumulate. This is the
	// gradient of a bias. Rows may have gaps. Float32 rows are added in ascending order, BFloat16
	// rows in an order that depends only on their number. x is a stored tensor.
	ColumnSum(dst Tensor, x Matrix, accumulate bool)
}

// Elementwise contains operations on tensors of equal length. The result may be one of the
// arguments.
type Elementwise interface {
	// Add computes y = a + b.
	Add(y, a, b Tensor)
	// Activate computes y = f(x). Both are stored tensors of the same type.
	Activate(f Activation, y, x Tensor)
	// ActivateGrad computes dx = dy * f'(x). GELU requires x, and the other activations require y =
	// f(x); the unused tensor may be empty. All are stored tensors of the same type.
	ActivateGrad(f Activation, dx, dy, x, y Tensor)
	// Dropout computes y = x/(1-p) for the elements of its mask, and 0 for the others. Applied to dy,
	// it computes dx. Both are stored tensors; x has y's type or Float32.
	Dropout(y, x Tensor, d Dropout)
	// Cast rounds Float32 to BFloat16 (to nearest even), or converts BFloat16 to Float32, or
	// Float32 to Float64. The tensors must not overlap.
	Cast(dst, src Tensor)
}

// Dropout configures dropout (Srivastava et al., 2014). The dropped elements depend only on Key and
// on the position of the element in the global batch. So they are the same in the forward and the
// backward pass, after a resume, and for every division of the batch among ranks.
type Dropout struct {
	P   float32 // probability of dropping an element, in [0, 1)
	Key uint64  // derived from step and layer
	// Local sample i is sample First + i*Stride of the global batch. Each sample has PerSample
	// elements.
	First, Stride, PerSample int
}
