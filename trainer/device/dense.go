package device

// Precision is how products of matrices are computed. Everything else is float32, but
// for how results are stored: see Device.Stored.
type Precision uint8

// The precisions.
const (
	// FP32 has float32 operands, products and sums.
	FP32 Precision = iota
	// BF16 rounds both operands to bfloat16 and sums in float32.
	BF16
)

// Activation is an elementwise function of a layer's outputs.
type Activation uint8

// The activations, as in torch.nn.functional.
const (
	Identity Activation = iota
	ReLU                // max(x, 0); NaN stays NaN
	Tanh
	GELU // gelu with approximate="tanh", GPT-2's
)

// Product is C = f(A·B + start), where start is zero, C, or a bias in each row. With BF16
// A, B and C with Pre are stored: A and B with contiguous rows or columns, and where C is
// BFloat16 the bias is rounded too.
type Product struct {
	// C is m x n with contiguous rows, A m x k and B k x n of any strides.
	C, A, B Matrix
	// Accumulate starts the sums from what C holds. Without Bias or Activation.
	Accumulate bool
	// Bias, unless empty, is the n numbers that each row's sums start from.
	Bias Tensor
	// Activation is f. Unless it is Identity, Pre gets A·B + Bias itself, and C,
	// which may be the same matrix, f of it; both are Whole.
	Activation Activation
	Pre        Matrix
	// Gradient makes C = A·B * f'(Pre) instead, of GELU: the gradient of what it was
	// applied to, which Pre holds, from that of its result, A·B. Without Bias or
	// Accumulate, and C is not Pre.
	Gradient  bool
	Precision Precision
}

// Dense are the operations of dense layers.
type Dense interface {
	// MatMul computes a product. The sum of an element of C has one order.
	MatMul(p Product)
	// ColumnSum writes, or with accumulate adds, the sum over the rows of x to dst:
	// the gradient of a bias. Rows may be apart. Those of Float32 are added in rising
	// order, those of BFloat16 in one that follows from how many
	// there are. x is stored.
	ColumnSum(dst Tensor, x Matrix, accumulate bool)
}

// Elementwise are operations on tensors of one length. The result may be one of
// the arguments.
type Elementwise interface {
	// Add is y = a + b.
	Add(y, a, b Tensor)
	// Activate is y = f(x), of stored tensors of one type.
	Activate(f Activation, y, x Tensor)
	// ActivateGrad is dx = dy * f'(x), from x (for GELU only, others may give an
	// empty tensor) and y = f(x) (for all but GELU). All are stored, of one type.
	ActivateGrad(f Activation, dx, dy, x, y Tensor)
	// Dropout is y = x/(1-p) where an element is kept, and 0 elsewhere; of dy it
	// gives dx. Both are stored: x is of y's type or Float32.
	Dropout(y, x Tensor, d Dropout)
	// Cast rounds Float32 to BFloat16 (to nearest even), or widens. Its tensors are
	// of the two types and share no memory.
	Cast(dst, src Tensor)
}

// Dropout says which elements are left out (Srivastava et al. 2014). That depends
// on nothing but Key and the element's place in the batch of all ranks together:
// so it is the same in the forward and the backward pass, after a restart, and
// however the batch is divided among ranks.
type Dropout struct {
	P   float32 // probability of being left out, in [0, 1)
	Key uint64  // of the step, and the layer
	// Local sample i, of PerSample elements each, is sample First + i*Stride of
	// the whole batch.
	First, Stride, PerSample int
}
