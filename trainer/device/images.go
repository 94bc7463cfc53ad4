package device

// Images are the operations on images. An image is a row: channel by channel, each
// row by row, as PyTorch's NCHW.
type Images interface {
	// NewConvolution plans a convolution.
	NewConvolution(s ConvolutionShape) Convolution
	// MaxPool writes the maximum of each Size x Size square, and which of the
	// square's elements it was (the first of equal ones; NaN wins) to chosen, an
	// Int32 tensor that counts row by row. Rows and columns that fill no square are left out, as by
	// torch.nn.MaxPool2d.
	MaxPool(y Matrix, chosen Tensor, x Matrix, s PoolShape)
	// MaxPoolGrad gives each chosen element its square's gradient, and 0 to others.
	MaxPoolGrad(dx, dy Matrix, chosen Tensor, s PoolShape)
}

// ConvolutionShape is a torch.nn.Conv2d with a bias and stride 1.
type ConvolutionShape struct {
	In, Out       int // channels
	Height, Width int // of the input
	Kernel        int // height and width
	Padding       int // zeros on each side
	Precision     Precision
}

// OutHeight is the height of the output.
func (s ConvolutionShape) OutHeight() int { return s.Height + 2*s.Padding - s.Kernel + 1 }

// OutWidth is the width of the output.
func (s ConvolutionShape) OutWidth() int { return s.Width + 2*s.Padding - s.Kernel + 1 }

// Convolution is a planned convolution. Weights are Out rows of In*Kernel*Kernel.
type Convolution interface {
	// Forward is y = x * w + b.
	Forward(y, x, w Matrix, b Tensor)
	// WeightGrad writes, or with accumulate adds, the gradient of w: a sum over
	// images in rising order.
	WeightGrad(dw, dy, x Matrix, accumulate bool)
	// BiasGrad is likewise for b.
	BiasGrad(db Tensor, dy Matrix, accumulate bool)
	// InputGrad writes the gradient of x.
	InputGrad(dx, dy, w Matrix)
}

// PoolShape is a torch.nn.MaxPool2d(Size).
type PoolShape struct {
	Channels, Height, Width int // of the input
	Size                    int
}

// OutHeight is the height of the output.
func (s PoolShape) OutHeight() int { return s.Height / s.Size }

// OutWidth is the width of the output.
func (s PoolShape) OutWidth() int { return s.Width / s.Size }
