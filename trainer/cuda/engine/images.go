//go:build cuda

package engine

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// convolution is a planned convolution.
type convolution struct {
	device.ConvolutionShape
	device *Device
}

// convolutionShape is struct Convolution of images.cu.
type convolutionShape struct {
	in, out, height, width, kernel, padding, outHeight, outWidth, images, round uint32
}

// NewConvolution plans a convolution.
func (d *Device) NewConvolution(s device.ConvolutionShape) device.Convolution {
	if s.In < 1 || s.Out < 1 || s.Kernel < 1 || s.Padding < 0 || s.OutHeight() < 1 || s.OutWidth() < 1 {
		panic(fmt.Sprintf("engine: convolution of shape %+v", s))
	}
	return &convolution{s, d}
}

func (c *convolution) terms() int { return c.In * c.Kernel * c.Kernel }

// plan checks the arguments that all operations share: y is the output and x the input, or their
// gradients.
func (c *convolution) plan(y, x, w device.Matrix) convolutionShape {
	if y.Rows != x.Rows || x.Cols != c.In*c.Height*c.Width || y.Cols != c.Out*c.OutHeight()*c.OutWidth() || w.Rows != c.Out || w.Cols != c.terms() {
		panic(fmt.Sprintf("engine: convolution %+v of %dx%d to %dx%d by %dx%d", c.ConvolutionShape, x.Rows, x.Cols, y.Rows, y.Cols, w.Rows, w.Cols))
	}
	n := func(v int) uint32 { return uint32(v) }
	return convolutionShape{n(c.In), n(c.Out), n(c.Height), n(c.Width), n(c.Kernel), n(c.Padding), n(c.OutHeight()), n(c.OutWidth()), n(x.Rows), flag(c.Precision == device.BF16)}
}

// Forward computes the output.
func (c *convolution) Forward(y, x, w device.Matrix, b device.Tensor) {
	shape := c.plan(y, x, w)
	sameLength("convolve with", c.Out, b.Len())
	to, from, weights := whole("images", y), whole("images", x), whole("weights", w)
	d := c.device
	defer d.enter("convolve", x.Rows, c.In, c.Out, c.Kernel).Leave()
	d.args.Reset().Ptr(to).Ptr(from).Ptr(weights).Ptr(floats(b))
	driver.Struct(&d.args, &shape)
	d.launch("convolve", tiles(c.Out, x.Rows*c.OutHeight()*c.OutWidth()))
}

// WeightGrad computes the gradient of the weights.
func (c *convolution) WeightGrad(dw, dy, x device.Matrix, accumulate bool) {
	shape := c.plan(dy, x, dw)
	to, grads, from := whole("a weight gradient", dw), whole("images", dy), whole("images", x)
	d := c.device
	defer d.enter("convolve_weight_grad", x.Rows, c.In, c.Out, c.Kernel).Leave()
	l, outputs := tiles(c.Out, c.terms()), x.Rows*c.OutHeight()*c.OutWidth()
	run, n := splitSum(outputs, l.Grid.X*l.Grid.Y, 512)
	l.Grid.Z = n
	d.launchRuns("convolve_weight_grad", l, to, c.Out*c.terms(), n, accumulate, func(to driver.Ptr, accumulate bool) {
		d.args.Reset().Ptr(to).Ptr(grads).Ptr(from)
		driver.Struct(&d.args, &shape)
		d.args.Int(run).Uint32(flag(accumulate))
	})
}

// splitSum divides a sum of n terms, which the given number of blocks would compute, into runs of at
// least the given number of terms, until there are enough blocks for a large GPU. The runs do not
// depend on the GPU, because the order of additions depends on them.
func splitSum(n, blocks, least int) (run, runs int) {
	const enough = 256
	parts := max(1, enough/blocks)
	run = max(least, (n+parts-1)/parts)
	return run, max(1, (n+run-1)/run)
}

// launchRuns launches a kernel whose blocks sum n runs of terms, and adds the runs' results of the
// given length. arguments sets the kernel's arguments.
func (d *Device) launchRuns(kernel string, l driver.Launch, to driver.Ptr, length, n int, accumulate bool, arguments func(to driver.Ptr, accumulate bool)) {
	if n == 1 {
		arguments(to, accumulate)
		d.launch(kernel, l)
		return
	}
	sums := d.scratchFor(scratchSums, 4*n*length)
	arguments(sums, false)
	d.launch(kernel, l)
	d.addRuns(to, length, sums, n, accumulate)
}

// BiasGrad computes the gradient of the bias.
func (c *convolution) BiasGrad(db device.Tensor, dy device.Matrix, accumulate bool) {
	size := c.OutHeight() * c.OutWidth()
	if dy.Cols != c.Out*size {
		panic(fmt.Sprintf("engine: convolution %+v to %dx%d", c.ConvolutionShape, dy.Rows, dy.Cols))
	}
	sameLength("add up", c.Out, db.Len())
	from := whole("images", dy)
	d := c.device
	defer d.enter("convolve_bias_grad", dy.Rows, c.Out, size).Leave()
	run, n := splitSum(dy.Rows, c.Out, (1023+size)/size)
	l := blocks(c.Out)
	l.Grid.Y = n
	d.launchRuns("convolve_bias_grad", l, floats(db), c.Out, n, accumulate, func(to driver.Ptr, accumulate bool) {
		d.args.Reset().Ptr(to).Ptr(from).Int(dy.Rows).Int(c.Out).Int(size).Int(run).Uint32(flag(accumulate))
	})
}

// InputGrad computes the gradient of the input.
func (c *convolution) InputGrad(dx, dy, w device.Matrix) {
	shape := c.plan(dy, dx, w)
	to, from, weights := whole("images", dx), whole("images", dy), whole("weights", w)
	d := c.device
	defer d.enter("convolve_input_grad", dx.Rows, c.In, c.Out, c.Kernel).Leave()
	d.args.Reset().Ptr(to).Ptr(from).Ptr(weights)
	driver.Struct(&d.args, &shape)
	d.launch("convolve_input_grad", tiles(c.In, dx.Rows*c.Height*c.Width))
}

// poolShape is struct Pool of images.cu.
type poolShape struct{ height, width, size, outHeight, outWidth uint32 }

func pooled(s device.PoolShape, x, y device.Matrix, chosen device.Tensor) poolShape {
	if s.Size < 1 || y.Rows != x.Rows || x.Cols != s.Channels*s.Height*s.Width || y.Cols != s.Channels*s.OutHeight()*s.OutWidth() || chosen.Len() != y.Rows*y.Cols {
		panic(fmt.Sprintf("engine: pool %+v of %dx%d to %dx%d, %d chosen", s, x.Rows, x.Cols, y.Rows, y.Cols, chosen.Len()))
	}
	return poolShape{uint32(s.Height), uint32(s.Width), uint32(s.Size), uint32(s.OutHeight()), uint32(s.OutWidth())}
}

// MaxPool computes the maximum of each square.
func (d *Device) MaxPool(y device.Matrix, chosen device.Tensor, x device.Matrix, s device.PoolShape) {
	shape, n := pooled(s, x, y, chosen), y.Rows*y.Cols
	to, from := whole("images", y), whole("images", x)
	if n == 0 {
		return
	}
	defer d.enter("max_pool", x.Rows, s.Channels, s.Height, s.Width).Leave()
	d.args.Reset().Ptr(to).Ptr(ints(chosen)).Ptr(from)
	driver.Struct(&d.args, &shape)
	d.args.Int64(int64(n))
	d.launch("max_pool", gridFor(n))
}

// MaxPoolGrad copies each gradient to the element that was the maximum.
func (d *Device) MaxPoolGrad(dx, dy device.Matrix, chosen device.Tensor, s device.PoolShape) {
	shape, n := pooled(s, dx, dy, chosen), dx.Rows*dx.Cols
	to, from := whole("images", dx), whole("images", dy)
	defer d.enter("max_pool_grad", dx.Rows, s.Channels, s.Height, s.Width).Leave()
	d.args.Reset().Ptr(to).Ptr(from).Ptr(ints(chosen))
	driver.Struct(&d.args, &shape)
	d.args.Int64(int64(n))
	d.launch("max_pool_grad", gridFor(n))
}
