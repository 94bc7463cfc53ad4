package plan

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// A Launch is an operation that a step enqueues on a GPU: a kernel, a matrix multiplication, a fill,
// or a copy.
type Launch struct {
	// Kernel is the name of the kernel. It is "fill" or "copy" for those operations, and for a matrix
	// multiplication "matmul" or "matmul32" (in float32) with rows, columns, and terms.
	Kernel string
	Class  Class
	// FLOP is the number of floating-point operations of matmuls and attention, with recomputation
	// and without masked positions.
	FLOP float64
	// Bytes is the size of the memory that the operation, or its slowest block, reads and writes. Rows
	// that are read again soon count once: they are in a cache.
	Bytes float64
}

// A Class is a kind of launches with a common limit of speed.
type Class string

// The classes of launches.
const (
	Matmul    Class = "matmul"    // matrix multiplications of cuBLASLt in bf16
	Matmul32  Class = "matmul32"  // matrix multiplications of cuBLASLt in float32
	Attention Class = "attention" // matrix multiplications in attention kernels
	Streaming Class = "memory"    // reads and writes of GPU memory
	OneBlock  Class = "one block" // kernels that take as long as their only or their slowest block
)

// classes are all classes, in the order of tables.
var classes = []Class{Matmul, Matmul32, Attention, Streaming, OneBlock}

// A Recorder is a [Counter] for a GPU that also records the launches of operations in bf16. It lists
// the kernels that package trainer/cuda/engine launches; a test of that package compares the two.
// It does not support convolutions.
type Recorder struct {
	Counter
	Launches []Launch
	wgmma    bool
	next     uintptr // address of the next tensor
}

// NewRecorder returns a Recorder. Attention uses the wgmma instructions of Hopper, or mma.
func NewRecorder(wgmma bool) *Recorder {
	return &Recorder{Counter: Counter{StoresBF16: true}, wgmma: wgmma, next: fakeAddress}
}

// Alloc counts memory. Each tensor has its own address, because the choice of kernels depends on
// alignment and on operations in place.
func (r *Recorder) Alloc(t device.Type, n int) device.Tensor {
	const alignment = 256
	at := unsafe.Add(nil, r.next)
	r.next += (uintptr(n*t.Size()) + alignment - 1) &^ (alignment - 1)
	r.Bytes += int64(n) * int64(t.Size())
	return device.At(t, at, n)
}

func (r *Recorder) launch(kernel string, c Class, bytes int) {
	r.Launches = append(r.Launches, Launch{Kernel: kernel, Class: c, Bytes: float64(bytes)})
}

// stream records a kernel that reads and writes each element of the tensors once.
func (r *Recorder) stream(kernel string, tensors ...device.Tensor) {
	bytes := 0
	for _, t := range tensors {
		bytes += t.Bytes()
	}
	r.launch(kernel, Streaming, bytes)
}

// kernelFor returns the name of a kernel for a tensor. Kernels for bfloat16 have a suffix.
func kernelFor(t device.Tensor, name string) string {
	if t.Type() == device.BFloat16 {
		return name + "_bf16"
	}
	return name
}

// Copy records a copy.
func (r *Recorder) Copy(dst, src device.Tensor) { r.stream("copy", dst, src) }

// Zero records a fill.
func (r *Recorder) Zero(t device.Tensor) { r.stream("fill", t) }

// MatMul records a matrix multiplication and the rounding of its operands. It records the activation
// and the sum of columns only if cuBLASLt does not compute them. It assumes that cuBLASLt has all
// epilogues.
func (r *Recorder) MatMul(p device.Product) {
	r.Counter.MatMul(p)
	name, class, size := "matmul", Matmul, 2 // bytes of an element of the operands
	if p.Precision != device.BF16 {
		name, class, size = "matmul32", Matmul32, 4
	}
	for _, operand := range [...]device.Matrix{p.A, p.B} {
		if class == Matmul && operand.Data.Type() != device.BFloat16 {
			r.pack(operand)
		}
	}
	m, n, k := p.C.Rows, p.C.Cols, p.A.Cols
	narrow := p.C.Data.Type() == device.BFloat16
	if p.Bias.Len() > 0 && narrow && p.Bias.Type() != device.BFloat16 {
		r.launch("narrow", Streaming, 6*p.Bias.Len())
	}
	const multiple = 8 // of elements in the rows of GELU's argument
	fused := p.Activation == device.GELU && narrow && n%multiple == 0
	bytes := size*(m*k+k*n) + m*n*p.C.Data.Type().Size()
	if p.Accumulate {
		bytes += m * n * p.C.Data.Type().Size()
	}
	if fused {
		bytes += p.Pre.Data.Bytes()
	}
	r.launch(fmt.Sprintf("%s %dx%dx%d", name, m, n, k), class, bytes)
	r.Launches[len(r.Launches)-1].FLOP = 2 * float64(m) * float64(n) * float64(k)
	if p.ColumnSum.Len() > 0 && !fusesColumnSum(p) {
		r.ColumnSum(p.ColumnSum, p.B, p.Accumulate)
	}
	switch {
	case p.Activation == device.Identity || fused:
	case p.Gradient:
		r.ActivateGrad(p.Activation, p.C.Data, p.C.Data, p.Pre.Data, p.Pre.Data)
	default:
		r.Activate(p.Activation, p.C.Data, p.Pre.Data)
	}
}

// fusesColumnSum reports whether cuBLASLt sums the columns of B.
func fusesColumnSum(p device.Product) bool {
	const alignment = 16 // of the sums, in bytes
	return !p.Accumulate && p.B.Data.Type() == device.BFloat16 && p.C.Data.Type() == device.Float32 && p.ColumnSum.Addr()%alignment == 0
}

// pack records the rounding of an operand.
func (r *Recorder) pack(m device.Matrix) {
	rows, pitch := m.Packed()
	name := "pack"
	if rows.ColStride == 1 && rows.RowStride == pitch && rows.Cols == pitch {
		name = "narrow"
	}
	r.launch(name, Streaming, 4*rows.Rows*rows.Cols+2*rows.Rows*pitch)
}

// ColumnSum records a sum of rows.
func (r *Recorder) ColumnSum(dst device.Tensor, x device.Matrix, _ bool) {
	n := runs(x.Rows)
	r.launch("column_sum_bf16", Streaming, 2*x.Rows*x.Cols+4*n*x.Cols)
	r.addRuns(dst, n)
}

// runs returns the number of groups of rows in sums over rows.
func runs(rows int) int {
	const most, least = 128, 64
	each := max(least, (rows+most-1)/most)
	return (rows + each - 1) / each
}

// addRuns records the sum of the sums of n groups of rows.
func (r *Recorder) addRuns(dst device.Tensor, n int) {
	r.launch("add_runs", Streaming, 4*n*dst.Len()+dst.Bytes())
}

// Add records a sum.
func (r *Recorder) Add(y, a, b device.Tensor) { r.stream("add", y, a, b) }

// Scale records a product.
func (r *Recorder) Scale(y, x device.Tensor, _ float32) { r.stream("scale", y, x) }

// Activate records an activation.
func (r *Recorder) Activate(_ device.Activation, y, x device.Tensor) {
	r.stream(kernelFor(y, "activate"), y, x)
}

// ActivateGrad records the gradient of an activation.
func (r *Recorder) ActivateGrad(_ device.Activation, dx, dy, x, _ device.Tensor) {
	r.stream(kernelFor(dx, "activate_grad"), dx, dy, x)
}

// Dropout records dropout.
func (r *Recorder) Dropout(y, x device.Tensor, _ device.Dropout) {
	name := kernelFor(y, "drop_out")
	if x.Type() != y.Type() {
		name = "drop_out_narrow"
	}
	r.stream(name, y, x)
}

// Cast records a conversion.
func (r *Recorder) Cast(dst, src device.Tensor) {
	name := "narrow"
	switch dst.Type() {
	case device.Float32:
		name = "widen"
	case device.Float64:
		name = "widen_f64"
	}
	r.stream(name, dst, src)
}

// LayerNorm records a normalization.
func (r *Recorder) LayerNorm(y device.Matrix, mean, rstd device.Tensor, x device.Matrix, _, _ device.Tensor) {
	r.stream(kernelFor(y.Data, "layer_norm"), y.Data, mean, rstd, x.Data)
}

// AddLayerNorm records a sum and its normalization.
func (r *Recorder) AddLayerNorm(y, sum device.Matrix, mean, rstd device.Tensor, a, b device.Matrix, _, _ device.Tensor) {
	r.stream(kernelFor(y.Data, "add_layer_norm"), y.Data, sum.Data, mean, rstd, a.Data, b.Data)
}

// LayerNormBackward records the gradients of a normalization: one kernel if it can keep a row in
// registers.
func (r *Recorder) LayerNormBackward(g device.LayerNormGradients) {
	const most, elements = 1024, 8
	n := runs(g.X.Rows)
	in := g.DY.Data.Bytes() + g.X.Data.Bytes() + g.Mean.Bytes() + g.RStd.Bytes()
	out, sums := g.DX.Data.Bytes(), 8*n*g.X.Cols
	if g.AddX {
		out *= 2
	}
	if g.X.Cols <= most && g.X.Cols%elements == 0 {
		r.launch("layer_norm_backward_bf16", Streaming, in+out+g.Copy.Bytes()+sums)
		r.addRuns(g.DW, n)
		r.addRuns(g.DB, n)
		return
	}
	r.launch("layer_norm_param_grad_bf16", Streaming, in+sums)
	r.addRuns(g.DW, n)
	r.addRuns(g.DB, n)
	r.launch("layer_norm_grad_bf16", Streaming, in+out)
	if g.Copy.Len() > 0 {
		r.Cast(g.Copy, g.DX.Data)
	}
}

// Embed records a lookup of embeddings. The rows of positions are in a cache.
func (r *Recorder) Embed(y device.Matrix, tokens device.Tensor, table, positions device.Matrix, length, _ int) {
	rows := min(y.Rows, table.Rows)
	r.launch("embed", Streaming, y.Data.Bytes()+tokens.Bytes()+4*rows*table.Cols+4*min(length, y.Rows)*positions.Cols)
}

// EmbedGrad records the gradients of embeddings, with all rows of the table if there are enough tokens.
func (r *Recorder) EmbedGrad(dtable, dpositions, dy device.Matrix, tokens device.Tensor, length int) {
	n, pair := dy.Rows, 8 // bytes of a token with its position
	tokenBits := bits.Len(uint(dtable.Rows - 1))
	partBits := min(6, bits.Len(uint(n/1024)), tokenBits)
	passes, largest := (tokenBits-partBits+3)/4, n>>partBits+n/20 // a twentieth of all tokens may be equal
	r.launch("sort_tokens", OneBlock, 2*4*n+passes*largest*(4+2*pair))
	r.launch("embed_grad", Streaming, dy.Data.Bytes()+pair*n+2*4*min(n, dtable.Rows)*dtable.Cols)
	r.launch("position_grad", Streaming, dy.Data.Bytes()+2*4*min(length, n)*dpositions.Cols)
}

// NewAttention returns an attention that records its launches.
func (r *Recorder) NewAttention(s device.AttentionShape) device.Attention {
	suffix := "_bf16"
	for _, size := range []int{128, 64} {
		if s.HeadSize <= size {
			suffix = fmt.Sprintf("_%d", size)
		}
	}
	if r.wgmma && suffix != "_bf16" {
		suffix += "_wgmma"
	}
	return recordedAttention{attention{&r.Counter, s}, r, suffix}
}

type recordedAttention struct {
	attention
	recorder *Recorder
	suffix   string // of the kernels
}

// products records a kernel with n matmuls over the positions that causal attention does not mask.
func (a recordedAttention) products(kernel string, n int, in device.AttentionInput, tensors ...device.Tensor) {
	a.recorder.stream(kernel+a.suffix, tensors...)
	l := &a.recorder.Launches[len(a.recorder.Launches)-1]
	positions := float64(in.Queries) * (float64(in.Keys-in.Queries) + float64(in.Queries+1)/2)
	l.Class, l.FLOP = Attention, float64(2*n*in.Batch*a.Heads*a.HeadSize)*positions
}

// Forward records a kernel with two matmuls.
func (a recordedAttention) Forward(out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	a.attention.Forward(out, logSum, in)
	a.products("attention_forward", 2, in, elements(in.Q), elements(in.K), elements(in.V), elements(out), logSum)
}

// Backward records a kernel with three matmuls and a kernel with four. Both recompute the scores.
func (a recordedAttention) Backward(dq, dk, dv, dout, out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	a.attention.Backward(dq, dk, dv, dout, out, logSum, in)
	read := []device.Tensor{elements(in.Q), elements(in.K), elements(in.V), elements(dout), logSum, logSum} // and delta, which is as large
	a.products("attention_query_grad", 3, in, append(read, elements(out), elements(dq))...)
	a.products("attention_key_grad", 4, in, append(read[:len(read):len(read)], elements(dk), elements(dv))...)
}

// elements returns a tensor with as many elements as a matrix that is a part of a larger one.
func elements(m device.Matrix) device.Tensor {
	return device.At(m.Data.Type(), m.Data.Base(), m.Rows*m.Cols)
}

// NewConvolution panics.
func (r *Recorder) NewConvolution(device.ConvolutionShape) device.Convolution {
	panic("plan: a Recorder does not support convolutions")
}

// CrossEntropy records a loss. The kernel keeps rows in shared memory, if a GPU has enough of it; the
// Recorder assumes that.
func (r *Recorder) CrossEntropy(losses device.Tensor, logits device.Matrix, labels device.Tensor, scale float32) {
	tensors := []device.Tensor{losses, labels, logits.Data}
	if scale != 0 {
		tensors = append(tensors, logits.Data)
	}
	r.stream(kernelFor(logits.Data, "cross_entropy"), tensors...)
}

// ChunkSquares records sums of squares.
func (r *Recorder) ChunkSquares(_ device.Tensor, _ int, x device.Tensor, count int, _ bool) {
	r.sumSquares(x, count)
}

func (r *Recorder) sumSquares(x device.Tensor, count int) {
	const threads, partials = 256, 512
	n := min((x.Len()/count+threads-1)/threads, partials)
	r.stream("sum_squares", x)
	r.launch("sum_partial", OneBlock, 8*n)
}

// Normalize records a division by a norm.
func (r *Recorder) Normalize(y, x device.Tensor, _ float32) {
	r.sumSquares(x, 1)
	r.stream("normalize", y, x)
}

// Update records an update.
func (r *Recorder) Update(rule device.Rule, a device.Arrays, _ device.Factors) { r.update(rule, a) }

func (r *Recorder) update(rule device.Rule, a device.Arrays) {
	tensors := []device.Tensor{a.Value, a.Value, a.Grad, a.Rounded}
	for _, s := range a.State {
		tensors = append(tensors, s, s)
	}
	r.stream(string(rule), tensors...)
}

// NewReading returns a reading of zeros.
func (r *Recorder) NewReading() device.Reading { return &noReading{} }

type noReading struct{ values []float32 }

func (n *noReading) Begin(src device.Tensor) { n.values = make([]float32, src.Len()) }
func (n *noReading) Floats() []float32       { return n.values }

// NewStepDecision returns a decision that records its launches.
func (r *Recorder) NewStepDecision(scalars int) device.StepDecision {
	return recordedDecision{r, scalars}
}

type recordedDecision struct {
	*Recorder
	scalars int
}

// AddLoss records the sum of the losses.
func (d recordedDecision) AddLoss(_, rows device.Tensor, _ int, _ float64) {
	d.launch("add_loss", OneBlock, rows.Bytes())
}

// Reduce records the sum of the records.
func (d recordedDecision) Reduce(records device.Tensor) {
	d.launch("reduce_scalars", OneBlock, records.Bytes())
}

// Count does nothing.
func (d recordedDecision) Count(int64) {}

// Decide records the decision.
func (d recordedDecision) Decide(float64, []device.GroupFactors) { d.launch("decide", OneBlock, 0) }

// Update records an update.
func (d recordedDecision) Update(rule device.Rule, a device.Arrays, _ int) { d.update(rule, a) }

// Result returns a tensor of the result's length.
func (d recordedDecision) Result() device.Tensor {
	return device.At(device.Float32, unsafe.Add(nil, fakeAddress), 2+d.scalars)
}
