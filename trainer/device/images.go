package device

// Images contains the operations on images. An image is a row with the layout of PyTorch's NCHW:
// channel by channel, each row by row.
type Images interface {
	// NewConvolution plans a convolution.
	NewConvolution(s ConvolutionShape) Convolution
	// MaxPool stores the maximum of each Size x Size square in y, and the index of the maximum
	// within the square, row by row, in chosen, an Int32 tensor. Of equal elements the first is
	// chosen; NaN takes precedence. Rows and columns that do not fill a square are ignored, as in
	// torch.nn.MaxPool2d.
	MaxPool(y Matrix, chosen Tensor, x Matrix, s PoolShape)
	// MaxPoolGrad copies the gradient of each square to its chosen element, and 0 to the others.
	MaxPoolGrad(dx, dy Matrix, chosen Tensor, s PoolShape)
}

// ConvolutionShape is the shape of a torch.nn.Conv2d with a bias and stride 1.
type ConvolutionShape struct {
	In, Out       int // channels
	Height, Width int // of the input
	Kernel        int // height and width
	Padding       int // zeros on each side
	Precision     Precision
}

// OutHeight returns the height of the output.
func (s ConvolutionShape) OutHeight() int { return s.Height + 2*s.Padding - s.Kernel + 1 }

// OutWidth returns the width of the output.
func (s ConvolutionShape) OutWidth() int { return s.Width + 2*s.Padding - s.Kernel + 1 }

// A Convolution is a planned convolution. Its weights are Out rows of In*Kernel*Kernel elements.
type Convolution interface {
	// Forward computes y = x * w + b.
	Forward(y, x, w Matrix, b Tensor)
	// WeightGrad stores the gradient of w in dw, or adds it with accumulate. The order of the sum is
	// fixed. On the CPU, it is the order of the images.
	WeightGrad(dw, dy, x Matrix, accumulate bool)
	// BiasGrad stores the gradient of b in db, or adds it with accumulate. The order of the sum is
	// fixed. On the CPU, it is the order of the images.
	BiasGrad(db Tensor, dy Matrix, accumulate bool)
	// InputGrad stores the gradient of x in dx.
	InputGrad(dx, dy, w Matrix)
}

// PoolShape is the shape of a torch.nn.MaxPool2d(Size).
type PoolShape struct {
	Channels, Height, Width int // of the input
	Size                    int
}

// OutHeight returns the height of the output.
func (s PoolShape) OutHeight() int { return s.Height / s.Size }

// OutWidth returns the width of the output.
func (s PoolShape) OutWidth() int { return s.Width / s.Size }
