//go:build cuda

package engine

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// workspaceBytes is the size of cuBLASLt's workspace, its default on Hopper.
const workspaceBytes = 32 << 20

// products holds the plans of matrix multiplications, each created on first use.
type products struct {
	handle *blaslt.Handle
	plans  map[blaslt.Product]*blaslt.Plan // a nil plan means that cuBLASLt has none

	algorithms Algorithms // recorded algorithms
	tuning     *tuning    // nil unless algorithms are timed
}

func (p *products) open(files []string) error {
	if len(files) == 0 {
		version, err := driver.Load()
		if err != nil {
			return err
		}
		files = library.CUBLASLt(int(version) / 1000)
	}
	loaded, err := library.Open(files)
	if err != nil {
		return err
	}
	functions, err := blaslt.New(loaded)
	if err != nil {
		return err
	}
	p.plans = map[blaslt.Product]*blaslt.Plan{}
	if p.handle, err = functions.Handle(); err == nil {
		p.algorithms.CUBLASLt = p.handle.Version()
	}
	return err
}

func (p *products) close() error {
	if p.handle == nil {
		return nil
	}
	return errors.Join(p.stopTuning(), p.handle.Close())
}

// MatMul computes a matrix multiplication with cuBLASLt. If cuBLASLt has no algorithm for it, for
// example because neither rows nor columns of an operand are contiguous, float32 matrices use
// ddpbatch's kernel.
func (d *Device) MatMul(p device.Product) {
	m, n, k := p.C.Rows, p.C.Cols, p.A.Cols
	fit(p)
	defer d.enter("matmul", m, n, k).Leave()
	var bias driver.Ptr
	if p.Bias.Len() > 0 {
		bias = stored(p.Bias)
	}
	to := p.C
	if p.Activation != device.Identity && !p.Gradient {
		to = p.Pre
	}
	done, fused := d.tryBLAS(p, to, bias)
	if !done {
		if p.A.Data.Type() == device.BFloat16 || p.B.Data.Type() == device.BFloat16 || p.C.Data.Type() == device.BFloat16 {
			d.check(fmt.Errorf("cuBLASLt has no algorithm for these matrices in bfloat16: strides %d and %d, %d and %d, into %d", p.A.RowStride, p.A.ColStride, p.B.RowStride, p.B.ColStride, to.RowStride))
		}
		d.args.Reset().Ptr(floats(to.Data)).Int64(int64(to.RowStride))
		d.args.Ptr(floats(p.A.Data)).Int64(int64(p.A.RowStride)).Int64(int64(p.A.ColStride))
		d.args.Ptr(floats(p.B.Data)).Int64(int64(p.B.RowStride)).Int64(int64(p.B.ColStride))
		d.args.Ptr(bias).Int(m).Int(n).Int(k).Uint32(flag(p.Accumulate)).Uint32(flag(p.Precision == device.BF16))
		d.launch("multiply", tiles(m, n))
	}
	if p.ColumnSum.Len() > 0 && !fused {
		d.launchColumnSum(p.ColumnSum, p.B, p.Accumulate)
	}
	switch {
	case p.Activation == device.Identity || fused:
	case p.Gradient:
		d.launchActivateGrad(p.Activation, p.C.Data, p.C.Data, p.Pre.Data)
	default:
		d.launchActivate(p.Activation, p.C.Data, to.Data)
	}
}

// tiles returns the launch of a kernel of tiles.h.
func tiles(m, n int) driver.Launch {
	return driver.Launch{Grid: driver.Dim{X: (n + 63) / 64, Y: (m + 63) / 64}, Block: driver.Dim{X: threads}}
}

// fit panics unless the matrices match.
func fit(p device.Product) {
	bad := p.A.Rows != p.C.Rows || p.B.Cols != p.C.Cols || p.A.Cols != p.B.Rows || p.C.ColStride != 1 && p.C.Cols > 1 ||
		p.Bias.Len() > 0 && p.Bias.Len() != p.C.Cols || p.Accumulate && (p.Bias.Len() > 0 || p.Activation != device.Identity)
	if p.Activation != device.Identity {
		bad = bad || p.C.Data.Type() != p.Pre.Data.Type() || !p.C.Whole() || !p.Pre.Whole() || p.Pre.Rows != p.C.Rows || p.Pre.Cols != p.C.Cols
	}
	for _, t := range [...]device.Tensor{p.A.Data, p.B.Data, p.C.Data} {
		bad = bad || t.Type() == device.BFloat16 && p.Precision != device.BF16
	}
	bad = bad || p.Bias.Type() == device.BFloat16 && p.C.Data.Type() != device.BFloat16
	if n := p.ColumnSum.Len(); n > 0 {
		bad = bad || n != p.B.Cols || p.B.ColStride != 1 && n > 1 || p.Bias.Len() > 0 || p.Activation != device.Identity
	}
	if p.Gradient {
		bad = bad || p.Activation != device.GELU || p.Bias.Len() > 0
	}
	if bad || p.C.Rows < 1 || p.C.Cols < 1 || p.A.Cols < 1 {
		panic(fmt.Sprintf("engine: product of %dx%d and %dx%d (%v and %v) into %dx%d (%v, strides %d and %d), bias of %d, activation %d, gradient %t, column sum of %d, accumulate %t",
			p.A.Rows, p.A.Cols, p.B.Rows, p.B.Cols, p.A.Data.Type(), p.B.Data.Type(), p.C.Rows, p.C.Cols, p.C.Data.Type(), p.C.RowStride, p.C.ColStride, p.Bias.Len(), p.Activation, p.Gradient, p.ColumnSum.Len(), p.Accumulate))
	}
}

// fuses reports whether cuBLASLt may apply a product's activation, or its derivative. cuBLASLt's
// GELU is the tanh approximation also (cuBLAS documentation, cublasLtEpilogue_t), but its accuracy
// is not documented. So it is used only for results in bfloat16, whose rounding error is larger
// than the error of any tanh implementation. ReLU is not fused: cuBLASLt turns NaN into 0 (NVIDIA
// developer forum, topic 329783), which would hide a diverging run.
func (d *Device) fuses(p device.Product, bias driver.Ptr) bool {
	const multiple = 8 // of elements in the rows of GELU's argument
	fusion := FuseGELU
	if p.Gradient {
		fusion = FuseGELUGrad
	}
	if p.Activation != device.GELU || p.C.Data.Type() != device.BFloat16 || d.options.Disabled&fusion != 0 {
		return false
	}
	pre := stored(p.Pre.Data)
	return pre != stored(p.C.Data) && p.C.Cols%multiple == 0 && alignment(pre) >= minAlignment && (bias == 0 || d.fusesBias(bias))
}

// fusesBias reports whether cuBLASLt may add a bias.
func (d *Device) fusesBias(bias driver.Ptr) bool {
	return d.options.Disabled&FuseBias == 0 && alignment(bias) >= minAlignment
}

// fusesColumnSum reports whether cuBLASLt may sum the columns of B. It stores sums of C's type and
// cannot add them. In float32, each column is summed in the order of its rows, which only the
// kernel does.
func (d *Device) fusesColumnSum(p device.Product) bool {
	return p.ColumnSum.Len() > 0 && !p.Accumulate && p.B.Data.Type() == device.BFloat16 && p.C.Data.Type() == device.Float32 &&
		d.options.Disabled&FuseBiasGrad == 0 && alignment(floats(p.ColumnSum)) >= minAlignment
}

// keepsOccupancy reports whether an algorithm with sums of B uses about as much of the GPU as the one
// without, which can be nil. Narrow products need split-K, which cuBLASLt may not combine with the sums.
// That would cost more than a kernel for the sums.
func keepsOccupancy(with, without *blaslt.Plan) bool {
	return without == nil || with.Occupancy() >= 0.9*without.Occupancy()
}

// tryBLAS computes a matrix multiplication with cuBLASLt: into the given matrix without the
// activation, or into p.C and p.Pre with it. It reports whether that is supported, and whether the
// activation was applied or the columns of B were summed.
func (d *Device) tryBLAS(p device.Product, to device.Matrix, bias driver.Ptr) (done, fused bool) {
	problem := blaslt.Product{M: to.Rows, N: to.Cols, K: p.A.Cols, BF16: p.Precision == device.BF16, Narrow: to.Data.Type() == device.BFloat16}
	a, inA, okA := d.operand(scratchA, p.A, p.Precision)
	b, inB, okB := d.operand(scratchB, p.B, p.Precision)
	if !okA || !okB {
		return false, false
	}
	problem.A, problem.B = inA, inB
	if bias != 0 && problem.Narrow && p.Bias.Type() != device.BFloat16 {
		bias = d.round(scratchBias, bias, p.Bias.Len())
	}
	problem.Bias = bias != 0 && d.fusesBias(bias)
	workspace := d.scratchFor(scratchWorkspace, workspaceBytes)
	if d.fuses(p, bias) {
		c := stored(p.C.Data)
		with := problem
		with.GELU, with.Slope, with.D = !p.Gradient, p.Gradient, blaslt.Operand{Pitch: p.C.Cols, Align: alignment(c)}
		if plan := d.planned(with); plan != nil {
			d.submit(call{kind: multiplies, plan: plan, to: c, a: a, b: b, bias: bias, pre: stored(p.Pre.Data), workspace: workspace})
			return true, true
		}
	}
	c := stored(to.Data)
	problem.D = blaslt.Operand{Pitch: max(to.RowStride, to.Cols), Align: alignment(c)}
	if d.fusesColumnSum(p) {
		with := problem
		with.SumB = true
		if plan := d.planned(with); plan != nil && keepsOccupancy(plan, d.planned(problem)) {
			d.submit(call{kind: multiplies, plan: plan, to: c, a: a, b: b, bias: floats(p.ColumnSum), workspace: workspace})
			return true, true
		}
	}
	plan := d.planned(problem)
	if plan == nil && problem.Bias {
		problem.Bias = false
		plan = d.planned(problem)
	}
	if plan == nil {
		return false, false
	}
	beta := float32(0)
	if p.Accumulate {
		beta = 1
	}
	if bias != 0 && !problem.Bias { // the sums start from the contents of C
		d.args.Reset().Ptr(c).Int64(int64(problem.D.Pitch)).Ptr(bias).Int(to.Rows).Int(to.Cols)
		d.launch(kernelFor(to.Data, "fill_rows", "fill_rows_bf16"), gridFor(to.Rows*to.Cols))
		bias, beta = 0, 1
	}
	d.submit(call{kind: multiplies, plan: plan, to: c, a: a, b: b, bias: bias, beta: beta, workspace: workspace})
	return true, false
}

const (
	minAlignment = 16  // bytes; required by epilogues for a bias, its gradient, and GELU's argument
	maxAlignment = 256 // bytes; the largest alignment that cuBLASLt's heuristics distinguish
)

// alignment returns the alignment of an address in bytes, up to maxAlignment.
func alignment(p driver.Ptr) int { return 1 << bits.TrailingZeros64(uint64(p)|maxAlignment) }

// operand returns a matrix as an operand for cuBLASLt, if it is supported. If the operand is to be
// rounded, it is a copy.
func (d *Device) operand(use int, m device.Matrix, p device.Precision) (driver.Ptr, blaslt.Operand, bool) {
	if p == device.BF16 && m.Data.Type() == device.Float32 {
		to, packed := d.pack(use, m)
		return to, packed, true
	}
	at := stored(m.Data)
	switch {
	case (m.ColStride == 1 || m.Cols == 1) && (m.RowStride >= m.Cols || m.Rows == 1):
		return at, blaslt.Operand{Pitch: max(m.RowStride, m.Cols), Align: alignment(at)}, true
	case (m.RowStride == 1 || m.Rows == 1) && (m.ColStride >= m.Rows || m.Cols == 1):
		return at, blaslt.Operand{Pitch: max(m.ColStride, m.Rows), Align: alignment(at), Transposed: true}, true
	}
	return at, blaslt.Operand{}, false
}

// pack rounds a matrix to bfloat16. It preserves the memory order and uses a row pitch that tensor
// cores prefer.
func (d *Device) pack(use int, m device.Matrix) (driver.Ptr, blaslt.Operand) {
	transposed := m.RowStride == 1 && m.ColStride != 1
	m, pitch := m.Packed()
	to := d.scratchFor(use, 2*m.Rows*pitch)
	packed := blaslt.Operand{Pitch: pitch, Align: alignment(to), Transposed: transposed}
	if m.ColStride == 1 && m.RowStride == pitch && m.Cols == pitch {
		return d.round(use, floats(m.Data), m.Rows*m.Cols), packed
	}
	d.args.Reset().Ptr(to).Int64(int64(pitch)).Ptr(floats(m.Data)).Int64(int64(m.RowStride)).Int64(int64(m.ColStride)).Int(m.Rows).Int(m.Cols)
	d.launch("pack", gridFor(m.Rows*m.Cols))
	return to, packed
}

// round returns a copy of float32 elements in bfloat16.
func (d *Device) round(use int, from driver.Ptr, n int) driver.Ptr {
	to := d.scratchFor(use, 2*n)
	d.args.Reset().Ptr(to).Ptr(from).Int64(int64(n))
	d.launch("narrow", gridFor(n))
	return to
}

// planned returns the plan for a product, or nil. It creates the plan on first use.
func (d *Device) planned(problem blaslt.Product) *blaslt.Plan {
	plan, ok := d.products.plans[problem]
	if !ok {
		var err error
		plan, err = d.products.handle.Plan(problem, workspaceBytes, d.products.algorithmsOf(problem))
		if err == nil && plan != nil {
			err = d.products.selectRecorded(plan)
		}
		d.check(err)
		d.products.plans[problem] = plan
	}
	return plan
}

// ColumnSum sums rows.
func (d *Device) ColumnSum(dst device.Tensor, x device.Matrix, accumulate bool) {
	sameLength("add up", x.Cols, dst.Len())
	if x.ColStride != 1 && x.Cols > 1 {
		panic(fmt.Sprintf("engine: the sum of columns %d apart", x.ColStride))
	}
	defer d.enter("column_sum", x.Rows, x.Cols).Leave()
	d.launchColumnSum(dst, x, accumulate)
}

// launchColumnSum launches the kernels of ColumnSum.
func (d *Device) launchColumnSum(dst device.Tensor, x device.Matrix, accumulate bool) {
	if x.Data.Type() == device.BFloat16 {
		r := runsOf(x.Rows, x.Cols)
		sums := d.scratchFor(scratchSums, r.bytes)
		d.args.Reset().Ptr(sums).Ptr(at(x.Data)).Int64(int64(x.RowStride)).Int(x.Rows).Int(x.Cols).Int(r.rows)
		d.launch("column_sum_bf16", r.launch)
		d.addRuns(floats(dst), dst.Len(), sums, r.launch.Grid.Y, accumulate)
		return
	}
	d.args.Reset().Ptr(floats(dst)).Ptr(floats(x.Data)).Int64(int64(x.RowStride)).Int(x.Rows).Int(x.Cols).Uint32(flag(accumulate))
	d.launch("column_sum", columns(x.Cols))
}

// runs describes the order in which columns.cu sums rows: in runs of rows, with a buffer for the
// sums of all runs.
type runs struct {
	rows, bytes int
	launch      driver.Launch
}

// runsOf returns enough runs to keep a large GPU busy, but only one for few rows.
func runsOf(rows, cols int) runs {
	const most, least = 128, 64
	each := max(least, (rows+most-1)/most)
	n := (rows + each - 1) / each
	return runs{each, 4 * n * cols, driver.Launch{Grid: driver.Dim{X: (cols + 255) / 256, Y: n}, Block: driver.Dim{X: threads}}}
}

// addRuns adds the sums of n runs.
func (d *Device) addRuns(dst driver.Ptr, length int, sums driver.Ptr, n int, accumulate bool) {
	if length > maxBlocks*threads {
		panic(fmt.Sprintf("engine: sum of runs of %d elements", length)) // the kernel adds one element per thread
	}
	d.args.Reset().Ptr(dst).Ptr(sums).Int(n).Int(length).Uint32(flag(accumulate))
	d.launch("add_runs", gridFor(length))
}
