package cpu

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// convolution is a planned convolution that computes one GEMM per image (im2col). It copies the
// image with its padding. Each element of the kernel reads a shifted range of the padded image,
// which is contiguous if outputs are computed for the full padded width. Outputs beyond the end of
// an output row are dropped; in gradients, they are zero.
type convolution struct {
	device.ConvolutionShape
	device     *Device
	workspaces []*convolutionWorkspace // one per thread

	// The operation in progress.
	do         func(c *convolution, r *convolutionWorkspace, first, end int)
	n          int // number of images or output channels to divide
	images     int
	x, y, w, b []float32 // or their gradients
	accumulate bool
}

// convolutionWorkspace is the workspace of a thread.
type convolutionWorkspace struct {
	products *gemm.Workspace
	padded   []float32 // [In, paddedHeight, paddedWidth]
	columns  []float32 // [In*Kernel*Kernel, span]
	outputs  []float32 // [Out, span]
}

func (c *convolution) paddedHeight() int { return c.Height + 2*c.Padding }
func (c *convolution) paddedWidth() int  { return c.Width + 2*c.Padding }

// span returns the number of columns of the GEMM: output rows, each as wide as the padded image,
// except for the last, which ends at the last output.
func (c *convolution) span() int { return (c.OutHeight()-1)*c.paddedWidth() + c.OutWidth() }

// terms returns the number of inputs of an output element.
func (c *convolution) terms() int { return c.In * c.Kernel * c.Kernel }

// NewConvolution plans a convolution.
func (d *Device) NewConvolution(s device.ConvolutionShape) device.Convolution {
	c := &convolution{ConvolutionShape: s, device: d}
	if s.In < 1 || s.Out < 1 || s.Kernel < 1 || s.Padding < 0 || s.OutHeight() < 1 || s.OutWidth() < 1 {
		panic(fmt.Sprintf("cpu: convolution of shape %+v", s))
	}
	for _, products := range d.perThread() {
		c.workspaces = append(c.workspaces, &convolutionWorkspace{
			products: products,
			padded:   make([]float32, s.In*c.paddedHeight()*c.paddedWidth()),
			columns:  make([]float32, c.terms()*c.span()),
			outputs:  make([]float32, s.Out*c.span()),
		})
	}
	return c
}

func (c *convolution) part(thread, threads int) {
	first, end := share(c.n, 1, thread, threads)
	c.do(c, c.workspaces[thread], first, end)
}

// run runs an operation on n images or output channels.
func (c *convolution) run(n int, do func(c *convolution, r *convolutionWorkspace, first, end int)) {
	c.n, c.do = n, do
	c.device.pool.do(c, n, c.images*c.Out*c.span())
	c.x, c.y, c.w, c.b = nil, nil, nil, nil
}

// plan checks the arguments that all operations share: y is the output and x the input, or their
// gradients.
func (c *convolution) plan(y, x device.Matrix) {
	if y.Rows != x.Rows || x.Cols != c.In*c.Height*c.Width || y.Cols != c.Out*c.OutHeight()*c.OutWidth() {
		panic(fmt.Sprintf("cpu: convolution %+v of %dx%d to %dx%d", c.ConvolutionShape, x.Rows, x.Cols, y.Rows, y.Cols))
	}
	c.images, c.x, c.y = x.Rows, whole("images", x), whole("images", y)
}

// Forward computes the output.
func (c *convolution) Forward(y, x, w device.Matrix, b device.Tensor) {
	c.plan(y, x)
	sameLength("convolve with", c.Out, w.Rows, b.Len())
	c.w, c.b = whole("weights", w)[:c.Out*c.terms()], b.Floats()
	c.run(c.images, convolve)
}

func convolve(c *convolution, r *convolutionWorkspace, first, end int) {
	span, height, width := c.span(), c.OutHeight(), c.OutWidth()
	for image := first; image < end; image++ {
		c.unfold(r, image)
		for o := range c.Out {
			row := r.outputs[o*span : (o+1)*span]
			for i := range row {
				row[i] = c.b[o]
			}
		}
		multiply(r.products, c.Precision, gemm.Dense(r.outputs, c.Out, span), gemm.Dense(c.w, c.Out, c.terms()), gemm.Dense(r.columns, c.terms(), span), gemm.Accumulate())
		y := c.y[image*c.Out*height*width:][:c.Out*height*width]
		for o := range c.Out {
			for i := range height {
				copy(y[(o*height+i)*width:][:width], r.outputs[o*span+i*c.paddedWidth():])
			}
		}
	}
}

// unfold fills columns with the inputs of each element of the kernel (im2col).
func (c *convolution) unfold(r *convolutionWorkspace, image int) {
	high, wide, span := c.paddedHeight(), c.paddedWidth(), c.span()
	for i := range c.In {
		x := c.x[(image*c.In+i)*c.Height*c.Width:][:c.Height*c.Width]
		to := r.padded[i*high*wide:][:high*wide]
		for row := range c.Height {
			copy(to[(row+c.Padding)*wide+c.Padding:][:c.Width], x[row*c.Width:])
		}
		for k := range c.Kernel * c.Kernel {
			copy(r.columns[(i*c.Kernel*c.Kernel+k)*span:][:span], to[k/c.Kernel*wide+k%c.Kernel:])
		}
	}
}

// padGradient fills outputs with the gradient of the output channels from first to end of an image,
// and with zeros between the output rows.
func (c *convolution) padGradient(r *convolutionWorkspace, image, first, end int) gemm.Matrix {
	span, height, width := c.span(), c.OutHeight(), c.OutWidth()
	for o := first; o < end; o++ {
		dy := c.y[(image*c.Out+o)*height*width:][:height*width]
		to := r.outputs[o*span : (o+1)*span]
		for i := range height {
			row := to[i*c.paddedWidth():]
			clear(row[copy(row[:width], dy[i*width:]):min(len(row), c.paddedWidth())])
		}
	}
	return gemm.Dense(r.outputs[first*span:end*span], end-first, span)
}

// WeightGrad divides the work by output channels and sums over images in order.
func (c *convolution) WeightGrad(dw, dy, x device.Matrix, accumulate bool) {
	c.plan(dy, x)
	c.w, c.accumulate = whole("a weight gradient", dw)[:c.Out*c.terms()], accumulate
	c.run(c.Out, weightGrad)
}

func weightGrad(c *convolution, r *convolutionWorkspace, first, end int) {
	terms := c.terms()
	dw := gemm.Dense(c.w[first*terms:end*terms], end-first, terms)
	for image := range c.images {
		c.unfold(r, image)
		from := gemm.Accumulate()
		if image == 0 && !c.accumulate {
			from = gemm.Zero()
		}
		multiply(r.products, c.Precision, dw, c.padGradient(r, image, first, end), gemm.Dense(r.columns, terms, c.span()).T(), from)
	}
}

// BiasGrad divides the work by output channels and sums over images in order.
func (c *convolution) BiasGrad(db device.Tensor, dy device.Matrix, accumulate bool) {
	if dy.Cols != c.Out*c.OutHeight()*c.OutWidth() {
		panic(fmt.Sprintf("cpu: convolution %+v to %dx%d", c.ConvolutionShape, dy.Rows, dy.Cols))
	}
	sameLength("add up", c.Out, db.Len())
	c.images, c.y, c.b, c.accumulate = dy.Rows, whole("images", dy), db.Floats(), accumulate
	c.run(c.Out, biasGrad)
}

func biasGrad(c *convolution, _ *convolutionWorkspace, first, end int) {
	size := c.OutHeight() * c.OutWidth()
	for o := first; o < end; o++ {
		if !c.accumulate {
			c.b[o] = 0
		}
		for image := range c.images {
			c.b[o] += c.device.unit.Sum(c.y[(image*c.Out+o)*size:][:size])
		}
	}
}

// InputGrad divides the work by images.
func (c *convolution) InputGrad(dx, dy, w device.Matrix) {
	c.plan(dy, dx)
	c.w = whole("weights", w)[:c.Out*c.terms()]
	c.run(c.images, inputGrad)
}

func inputGrad(c *convolution, r *convolutionWorkspace, first, end int) {
	high, wide, span := c.paddedHeight(), c.paddedWidth(), c.span()
	for image := first; image < end; image++ {
		dy := c.padGradient(r, image, 0, c.Out)
		multiply(r.products, c.Precision, gemm.Dense(r.columns, c.terms(), span), gemm.Dense(c.w, c.Out, c.terms()).T(), dy, gemm.Zero())
		clear(r.padded)
		for i := range c.In {
			from := r.padded[i*high*wide:][:high*wide]
			for k := range c.Kernel * c.Kernel {
				to := from[k/c.Kernel*wide+k%c.Kernel:][:span]
				c.device.unit.Add(to, to, r.columns[(i*c.Kernel*c.Kernel+k)*span:][:span])
			}
			dx := c.x[(image*c.In+i)*c.Height*c.Width:][:c.Height*c.Width]
			for row := range c.Height {
				copy(dx[row*c.Width:][:c.Width], from[(row+c.Padding)*wide+c.Padding:])
			}
		}
	}
	clear(r.padded) // unfold requires zero padding
}
