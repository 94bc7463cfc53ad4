//go:build cuda

package engine

import (
	"errors"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// LayerNorm normalizes rows.
func (d *Device) LayerNorm(y device.Matrix, mean, rstd device.Tensor, x device.Matrix, w, b device.Tensor) {
	sameLength("normalize", x.Rows, y.Rows, mean.Len(), rstd.Len())
	sameLength("normalize", x.Cols, y.Cols, w.Len(), b.Len())
	to, from := wholeStored("the result", y), whole("the input", x)
	defer d.enter("layer_norm", x.Rows, x.Cols).Leave()
	d.args.Reset().Ptr(to).Ptr(floats(mean)).Ptr(floats(rstd)).Ptr(from).Ptr(floats(w)).Ptr(floats(b)).Int(x.Rows).Int(x.Cols)
	d.launch(kernelFor(y.Data, "layer_norm", "layer_norm_bf16"), warps(x.Rows))
}

// AddLayerNorm adds two matrices and normalizes the rows of the sum.
func (d *Device) AddLayerNorm(y, sum device.Matrix, mean, rstd device.Tensor, a, b device.Matrix, w, shift device.Tensor) {
	sameLength("normalize", sum.Rows, y.Rows, a.Rows, b.Rows, mean.Len(), rstd.Len())
	sameLength("normalize", sum.Cols, y.Cols, a.Cols, b.Cols, w.Len(), shift.Len())
	sameType("normalize", y.Data, b.Data)
	to, total, left, right := wholeStored("the result", y), whole("a sum", sum), whole("what is added", a), wholeStored("what is added", b)
	defer d.enter("add_layer_norm", sum.Rows, sum.Cols).Leave()
	d.args.Reset().Ptr(to).Ptr(total).Ptr(floats(mean)).Ptr(floats(rstd)).Ptr(left).Ptr(right).Ptr(floats(w)).Ptr(floats(shift)).Int(sum.Rows).Int(sum.Cols)
	d.launch(kernelFor(y.Data, "add_layer_norm", "add_layer_norm_bf16"), warps(sum.Rows))
}

// warps returns the launch of a kernel with one warp per row.
func warps(rows int) driver.Launch { return blocks((rows + 7) / 8) }

// columns returns the launch of a kernel with 32 columns per block.
func columns(n int) driver.Launch { return blocks((n + 31) / 32) }

// LayerNormBackward computes the gradients of a LayerNorm.
func (d *Device) LayerNormBackward(g device.LayerNormGradients) {
	sameLength("normalize", g.X.Rows, g.DX.Rows, g.DY.Rows, g.Mean.Len(), g.RStd.Len())
	sameLength("normalize", g.X.Cols, g.DX.Cols, g.DY.Cols, g.W.Len(), g.DW.Len(), g.DB.Len())
	if g.Copy.Len() > 0 {
		sameLength("copy", g.DX.Data.Len(), g.Copy.Len())
	}
	if g.DY.Data.Type() == device.BFloat16 && keepsRows(g) {
		d.allNormGrads(g)
		return
	}
	d.normParamGrads(g) // first, because DX may be DY
	d.normInputGrad(g)
	if g.Copy.Len() > 0 {
		d.Cast(g.Copy, g.DX.Data)
	}
}

// keepsRows reports whether layer_norm_backward_bf16 supports the arguments: it keeps rows in
// registers, and moves vectors of 16 bytes.
func keepsRows(g device.LayerNormGradients) bool {
	const most, elements, vector = 1024, 8, 16
	for _, t := range []device.Tensor{g.DX.Data, g.Copy, g.DY.Data, g.X.Data, g.W} {
		if alignment(at(t)) < vector {
			return false
		}
	}
	return g.X.Cols <= most && g.X.Cols%elements == 0
}

// allNormGrads reads and writes each row once.
func (d *Device) allNormGrads(g device.LayerNormGradients) {
	dx, dy, x := whole("a gradient", g.DX), wholeStored("a gradient", g.DY), whole("the input", g.X)
	defer d.enter("layer_norm_backward", g.X.Rows, g.X.Cols).Leave()
	r := runsOf(g.X.Rows, g.X.Cols)
	sums := d.normSums(r)
	d.args.Reset().Ptr(dx).Ptr(halves(g.Copy)).Ptr(sums.gains).Ptr(sums.biases).Ptr(dy).Ptr(x).Ptr(floats(g.W)).Ptr(floats(g.Mean)).Ptr(floats(g.RStd)).
		Int(g.X.Rows).Int(g.X.Cols).Int(r.rows).Uint32(flag(g.AddX))
	d.launch("layer_norm_backward_bf16", blocks(r.launch.Grid.Y))
	d.addNormSums(g, sums)
}

// normParamGrads computes the gradients of w and b.
func (d *Device) normParamGrads(g device.LayerNormGradients) {
	dy, x := wholeStored("a gradient", g.DY), whole("the input", g.X)
	defer d.enter("layer_norm_param_grad", g.X.Rows, g.X.Cols).Leave()
	if g.DY.Data.Type() == device.BFloat16 {
		r := runsOf(g.X.Rows, g.X.Cols)
		sums := d.normSums(r)
		d.args.Reset().Ptr(sums.gains).Ptr(sums.biases).Ptr(dy).Ptr(x).Ptr(floats(g.Mean)).Ptr(floats(g.RStd)).Int(g.X.Rows).Int(g.X.Cols).Int(r.rows)
		d.launch("layer_norm_param_grad_bf16", r.launch)
		d.addNormSums(g, sums)
		return
	}
	d.args.Reset().Ptr(floats(g.DW)).Ptr(floats(g.DB)).Ptr(dy).Ptr(x).Ptr(floats(g.Mean)).Ptr(floats(g.RStd)).Int(g.X.Rows).Int(g.X.Cols).Uint32(flag(g.Accumulate))
	d.launch("layer_norm_param_grad", columns(g.X.Cols))
}

// normInputGrad computes the gradient of x.
func (d *Device) normInputGrad(g device.LayerNormGradients) {
	dx, dy, x := whole("a gradient", g.DX), wholeStored("a gradient", g.DY), whole("the input", g.X)
	defer d.enter("layer_norm_grad", g.X.Rows, g.X.Cols).Leave()
	d.args.Reset().Ptr(dx).Ptr(dy).Ptr(x).Ptr(floats(g.W)).Ptr(floats(g.Mean)).Ptr(floats(g.RStd)).Int(g.X.Rows).Int(g.X.Cols).Uint32(flag(g.AddX))
	d.launch(kernelFor(g.DY.Data, "layer_norm_grad", "layer_norm_grad_bf16"), warps(g.X.Rows))
}

// normSums are buffers for the sums of n runs of rows.
type normSums struct {
	gains, biases driver.Ptr
	n             int
}

func (d *Device) normSums(r runs) normSums {
	gains := d.scratchFor(scratchSums, 2*r.bytes)
	return normSums{gains, gains + driver.Ptr(r.bytes), r.launch.Grid.Y}
}

// addNormSums adds the sums of all runs to the gradients of w and b.
func (d *Device) addNormSums(g device.LayerNormGradients, s normSums) {
	d.addRuns(floats(g.DW), g.DW.Len(), s.gains, s.n, g.Accumulate)
	d.addRuns(floats(g.DB), g.DB.Len(), s.biases, s.n, g.Accumulate)
}

// CrossEntropy computes the cross-entropy loss of logits.
func (d *Device) CrossEntropy(losses device.Tensor, logits device.Matrix, labels device.Tensor, scale float32) {
	sameLength("take the loss of", logits.Rows, losses.Len(), labels.Len())
	x := wholeStored("logits", logits)
	defer d.enter("cross_entropy", logits.Rows, logits.Cols).Leave()
	d.args.Reset().Ptr(floats(losses)).Ptr(x).Ptr(ints(labels)).Float(scale).Int(logits.Cols)
	l := blocks(logits.Rows)
	if logits.Data.Type() == device.BFloat16 {
		l.Shared = d.keptRow(logits.Cols, x)
		d.args.Uint32(flag(l.Shared > 0))
	}
	d.launch(kernelFor(logits.Data, "cross_entropy", "cross_entropy_bf16"), l)
}

// keptRow returns the shared memory with which cross_entropy_bf16 reads each row once, or 0 if a
// multiprocessor does not have it for two blocks, so that one block can read while the other one
// computes. The kernel moves vectors of 16 bytes.
func (d *Device) keptRow(cols int, logits driver.Ptr) int {
	const vector, other = 16, 128 + 1024 // bytes of a block: static, and reserved by the driver
	bytes := 2 * cols
	if bytes%vector != 0 || alignment(logits) < vector || 2*(bytes+other) > d.shared+1024 {
		return 0
	}
	if d.largestKeptRow < bytes {
		f := d.function("cross_entropy_bf16")
		d.check(errors.Join(f.AllowShared(max(bytes, 48<<10)), f.PreferShared()))
		d.largestKeptRow = bytes
	}
	return bytes
}

// SquaredError computes the squared error of predictions.
func (d *Device) SquaredError(losses device.Tensor, x device.Matrix, targets device.Tensor, scale float32) {
	sameLength("take the loss of", x.Rows, losses.Len())
	sameLength("take the loss of", x.Data.Len(), targets.Len())
	from := whole("predictions", x)
	defer d.enter("squared_error", x.Rows, x.Cols).Leave()
	d.args.Reset().Ptr(floats(losses)).Ptr(from).Ptr(floats(targets)).Float(scale).Int(x.Cols)
	d.launch("squared_error", blocks(x.Rows))
}

// ArgMax finds the largest element of each row.
func (d *Device) ArgMax(chosen device.Tensor, x device.Matrix) {
	sameLength("choose from", x.Rows, chosen.Len())
	from := wholeStored("what is chosen from", x)
	defer d.enter("arg_max", x.Rows, x.Cols).Leave()
	d.args.Reset().Ptr(ints(chosen)).Ptr(from).Int(x.Cols)
	d.launch(kernelFor(x.Data, "arg_max", "arg_max_bf16"), blocks(x.Rows))
}
