package cpu

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// norm is an operation of layer normalization, divided among threads by rows, or by columns if it
// sums over rows.
type norm struct {
	unit       *vec.Unit
	do         func(j *norm, first, end int)
	rows, cols int
	grain, n   int // granularity and number of the rows or columns to divide

	y, x, w, b, mean, rstd, dy []float32
	dw, db                     []float32
	accumulate                 bool
}

func (j *norm) run(p *pool) {
	p.do(j, (j.n+j.grain-1)/j.grain, j.rows*j.cols)
	*j = norm{unit: j.unit}
}

func (j *norm) part(thread, threads int) {
	first, end := share(j.n, j.grain, thread, threads)
	j.do(j, first, end)
}

// LayerNorm normalizes rows.
func (d *Device) LayerNorm(y device.Matrix, mean, rstd device.Tensor, x device.Matrix, w, b device.Tensor) {
	sameLength("layer norm of", x.Rows, y.Rows, mean.Len(), rstd.Len())
	j := &d.norm
	*j = norm{unit: j.unit, rows: x.Rows, cols: x.Cols, grain: 1, n: x.Rows, do: normRows,
		y: whole("the output of a layer norm", y), x: whole("the input of a layer norm", x),
		w: w.Floats(), b: b.Floats(), mean: mean.Floats(), rstd: rstd.Floats()}
	j.run(&d.pool)
}

func normRows(j *norm, first, end int) {
	for i := first; i < end; i++ {
		at, to := i*j.cols, (i+1)*j.cols
		j.mean[i], j.rstd[i] = j.unit.LayerNorm(j.y[at:to], j.x[at:to], j.w, j.b, device.LayerNormEps)
	}
}

// AddLayerNorm adds two matrices and normalizes the rows of the sum.
func (d *Device) AddLayerNorm(y, sum device.Matrix, mean, rstd device.Tensor, a, b device.Matrix, w, shift device.Tensor) {
	d.Add(sum.Data, a.Data, b.Data)
	d.LayerNorm(y, mean, rstd, sum, w, shift)
}

// LayerNormBackward computes the gradients of a LayerNorm.
func (d *Device) LayerNormBackward(g device.LayerNormGradients) {
	sameLength("layer norm of", g.X.Rows, g.DX.Rows, g.DY.Rows, g.Mean.Len(), g.RStd.Len())
	sameLength("layer norm of", g.X.Cols, g.DX.Cols, g.DY.Cols, g.W.Len(), g.DW.Len(), g.DB.Len())
	dx, dy, x := whole("the gradient of a layer norm", g.DX), whole("the output gradient of a layer norm", g.DY), whole("the input of a layer norm", g.X)
	j := &d.norm
	*j = norm{unit: j.unit, rows: g.X.Rows, cols: g.X.Cols, grain: grain, n: g.X.Cols, do: normParamColumns,
		dy: dy, x: x, dw: g.DW.Floats(), db: g.DB.Floats(), mean: g.Mean.Floats(), rstd: g.RStd.Floats(), accumulate: g.Accumulate}
	j.run(&d.pool)
	*j = norm{unit: j.unit, rows: g.X.Rows, cols: g.X.Cols, grain: 1, n: g.X.Rows, do: normGradRows,
		y: dx, dy: dy, x: x, w: g.W.Floats(), mean: g.Mean.Floats(), rstd: g.RStd.Floats(), accumulate: g.AddX}
	j.run(&d.pool) // after the parameters, because dx may be dy
	if g.Copy.Len() > 0 {
		d.Cast(g.Copy, g.DX.Data)
	}
}

func normGradRows(j *norm, first, end int) {
	for i := first; i < end; i++ {
		at, to := i*j.cols, (i+1)*j.cols
		j.unit.LayerNormGrad(j.y[at:to], j.dy[at:to], j.x[at:to], j.w, j.mean[i], j.rstd[i], j.accumulate)
	}
}

func normParamColumns(j *norm, first, end int) {
	if first == end {
		return
	}
	if !j.accumulate {
		clear(j.dw[first:end])
		clear(j.db[first:end])
	}
	j.unit.LayerNormParamGrad(j.dw[first:end], j.db[first:end], j.dy[first:], j.x[first:], j.mean, j.rstd, j.cols)
}
