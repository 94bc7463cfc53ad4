package plan

import (
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Counter is a [device.Device] that counts operations and memory but computes nothing. Its tensors
// have invalid addresses: they can be sliced but not accessed. Reads return zeros.
type Counter struct {
	// StoresBF16 simulates a GPU: a device that stores BFloat16 for matmuls in BF16 and rounds
	// their Float32 operands in memory of its own.
	StoresBF16 bool
	// Bytes is the allocated memory.
	Bytes int64
	// FLOP is the number of floating-point operations of matmuls, convolutions, and attention.
	// Attention counts all positions, even if a mask excludes half of them, as is usual (Chowdhery
	// et al. 2022, appendix B). Elementwise operations do not count.
	FLOP float64
	// Packed is the size in bytes of the largest left and the largest right operand that
	// [Counter.MatMul] had to round, in the layout of [device.Matrix.Packed].
	Packed [2]int64
}

var _ device.Device = (*Counter)(nil)

// fakeAddress is the address of all tensors: far from every valid address.
const fakeAddress = 1 << 46

// Name returns the name of the device.
func (c *Counter) Name() string { return "counter" }

// Host reports that tensors are not in host memory.
func (c *Counter) Host() bool { return false }

// Stored returns the type that the simulated device stores.
func (c *Counter) Stored(p device.Precision) device.Type {
	if c.StoresBF16 && p == device.BF16 {
		return device.BFloat16
	}
	return device.Float32
}

// Alloc counts memory.
func (c *Counter) Alloc(t device.Type, n int) device.Tensor {
	c.Bytes += int64(n) * int64(t.Size())
	return device.At(t, unsafe.Add(nil, fakeAddress), n)
}

// Write does nothing.
func (c *Counter) Write(device.Tensor, []float32) {}

// WriteInts does nothing.
func (c *Counter) WriteInts(device.Tensor, []int32) {}

// Read returns zeros.
func (c *Counter) Read(dst []float32, _ device.Tensor) { clear(dst) }

// ReadInts returns zeros.
func (c *Counter) ReadInts(dst []int32, _ device.Tensor) { clear(dst) }

// Copy does nothing.
func (c *Counter) Copy(_, _ device.Tensor) {}

// Zero does nothing.
func (c *Counter) Zero(device.Tensor) {}

// Accelerator returns nil, although Host returns false: a Counter only counts.
func (c *Counter) Accelerator() device.Accelerator { return nil }

// Checksum returns 0.
func (c *Counter) Checksum(device.Tensor) uint64 { return 0 }

// product counts an m x k matrix times a k x n matrix.
func (c *Counter) product(m, n, k int) { c.FLOP += 2 * float64(m) * float64(n) * float64(k) }

// MatMul counts a matmul and the memory for its operands.
func (c *Counter) MatMul(p device.Product) {
	c.product(p.C.Rows, p.C.Cols, p.A.Cols)
	if c.Stored(p.Precision) == device.Float32 {
		return
	}
	for i, operand := range [...]device.Matrix{p.A, p.B} {
		if operand.Data.Type() == device.BFloat16 {
			continue
		}
		m, pitch := operand.Packed()
		c.Packed[i] = max(c.Packed[i], 2*int64(m.Rows)*int64(pitch))
	}
}

// ColumnSum does nothing.
func (c *Counter) ColumnSum(device.Tensor, device.Matrix, bool) {}

// Add does nothing.
func (c *Counter) Add(_, _, _ device.Tensor) {}

// Activate does nothing.
func (c *Counter) Activate(device.Activation, device.Tensor, device.Tensor) {}

// ActivateGrad does nothing.
func (c *Counter) ActivateGrad(_ device.Activation, _, _, _, _ device.Tensor) {}

// Dropout does nothing.
func (c *Counter) Dropout(_, _ device.Tensor, _ device.Dropout) {}

// Cast does nothing.
func (c *Counter) Cast(_, _ device.Tensor) {}

// LayerNorm does nothing.
func (c *Counter) LayerNorm(_ device.Matrix, _, _ device.Tensor, _ device.Matrix, _, _ device.Tensor) {
}

// AddLayerNorm does nothing.
func (c *Counter) AddLayerNorm(_, _ device.Matrix, _, _ device.Tensor, _, _ device.Matrix, _, _ device.Tensor) {
}

// LayerNormBackward does nothing.
func (c *Counter) LayerNormBackward(device.LayerNormGradients) {}

// Embed does nothing.
func (c *Counter) Embed(_ device.Matrix, _ device.Tensor, _, _ device.Matrix, _, _ int) {}

// EmbedGrad does nothing.
func (c *Counter) EmbedGrad(_, _, _ device.Matrix, _ device.Tensor, _ int) {}

// NewAttention returns an attention that counts its operations.
func (c *Counter) NewAttention(s device.AttentionShape) device.Attention {
	return attention{c, s}
}

type attention struct {
	*Counter
	device.AttentionShape
}

// scores counts one matmul of queries and keys, or of weights and values.
func (a attention) scores(in device.AttentionInput) {
	a.product(in.Batch*a.Heads*in.Queries, in.Keys, a.HeadSize)
}

// Forward counts two matmuls.
func (a attention) Forward(_ device.Matrix, _ device.Tensor, in device.AttentionInput) {
	for range 2 {
		a.scores(in)
	}
}

// Backward counts four matmuls. It does not count a recomputation of the scores.
func (a attention) Backward(_, _, _, _, _ device.Matrix, _ device.Tensor, in device.AttentionInput) {
	for range 4 {
		a.scores(in)
	}
}

// NewConvolution returns a convolution that counts its operations.
func (c *Counter) NewConvolution(s device.ConvolutionShape) device.Convolution {
	return convolution{c, s}
}

type convolution struct {
	*Counter
	device.ConvolutionShape
}

func (c convolution) images(x device.Matrix) {
	c.product(x.Rows*c.OutHeight()*c.OutWidth(), c.Out, c.In*c.Kernel*c.Kernel)
}

// Forward counts a matmul.
func (c convolution) Forward(y, _, _ device.Matrix, _ device.Tensor) { c.images(y) }

// WeightGrad counts a matmul.
func (c convolution) WeightGrad(_, dy, _ device.Matrix, _ bool) { c.images(dy) }

// BiasGrad does nothing.
func (c convolution) BiasGrad(device.Tensor, device.Matrix, bool) {}

// InputGrad counts a matmul.
func (c convolution) InputGrad(_, dy, _ device.Matrix) { c.images(dy) }

// MaxPool does nothing.
func (c *Counter) MaxPool(device.Matrix, device.Tensor, device.Matrix, device.PoolShape) {}

// MaxPoolGrad does nothing.
func (c *Counter) MaxPoolGrad(_, _ device.Matrix, _ device.Tensor, _ device.PoolShape) {}

// CrossEntropy does nothing.
func (c *Counter) CrossEntropy(device.Tensor, device.Matrix, device.Tensor, float32) {}

// SquaredError does nothing.
func (c *Counter) SquaredError(device.Tensor, device.Matrix, device.Tensor, float32) {}

// ArgMax does nothing.
func (c *Counter) ArgMax(device.Tensor, device.Matrix) {}

// CountEqual returns zero.
func (c *Counter) CountEqual(_, _ device.Tensor) int { return 0 }

// SumSquares returns zero.
func (c *Counter) SumSquares(device.Tensor) float64 { return 0 }

// ChunkSquares does nothing.
func (c *Counter) ChunkSquares(device.Tensor, int, device.Tensor, int, bool) {}

// NewStepDecision returns nil: a Counter does not run steps.
func (c *Counter) NewStepDecision(int) device.StepDecision { return nil }

// NewReading returns nil: a Counter does not run steps.
func (c *Counter) NewReading() device.Reading { return nil }

// Scale does nothing.
func (c *Counter) Scale(_, _ device.Tensor, _ float32) {}

// Normalize does nothing.
func (c *Counter) Normalize(_, _ device.Tensor, _ float32) {}

// HasRule returns true.
func (c *Counter) HasRule(device.Rule) bool { return true }

// Update does nothing.
func (c *Counter) Update(device.Rule, device.Arrays, device.Factors) {}
