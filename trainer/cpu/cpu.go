// Package cpu is the [device.Device] of this machine's processor cores.
//
// Products of matrices are package gemm's, everything elementwise or along rows is
// package vec's: the fastest instructions that the processor has, with the same
// bits from all of them in float32. An operation is divided among threads by rows,
// columns or heads, never within a sum but at places that are fixed, so that results
// do not depend on the number of threads. Operations are done when their call
// returns, none allocates, and none keeps its arguments.
//
// Memory is the Go heap's. Large pieces ask the kernel for huge pages.
//
// It does not pin threads, and knows nothing of other processes on the same cores.
package cpu

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/gemm"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// Device is the processor. It serves one operation at a time.
type Device struct {
	unit     *vec.Unit
	products *gemm.Workspace   // for products that are divided
	alone    []*gemm.Workspace // of each thread, for products that are part of what is divided; see perThread
	pool     pool

	// The operation that is under way, by kind: memory for its arguments, where the
	// threads find them. It is cleared when the operation is done, or it would keep
	// tensors alive.
	elementwise elementwise
	norm        norm
	columns     columns
	embedding   embedding
	losses      losses
	squares     squares
	update      update
	pooling     pooling
}

var _ device.Device = (*Device)(nil)

// New returns the device for at most the given number of threads, or as many as
// GOMAXPROCS if that is zero or less.
func New(threads int) *Device {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	d := &Device{unit: vec.New(), products: gemm.NewWorkspace(threads)}
	d.pool.start(threads)
	d.elementwise.unit, d.norm.unit, d.columns.unit = d.unit, d.unit, d.unit
	d.embedding.unit, d.losses.unit, d.squares.unit, d.update.unit = d.unit, d.unit, d.unit, d.unit
	d.losses.plan(threads)
	d.squares.sums = make([]float64, squaresRound)
	return d
}

// perThread is a workspace for each thread. There are none before an operation that
// needs them is planned: they are some megabytes each.
func (d *Device) perThread() []*gemm.Workspace {
	for len(d.alone) < len(d.pool.threads) {
		d.alone = append(d.alone, gemm.NewWorkspace(1))
	}
	return d.alone
}

// Name is "cpu" and the instructions in use.
func (d *Device) Name() string { return "cpu, " + d.products.Kernel() }

// Stored is Float32: operands are rounded where products read them.
func (d *Device) Stored(device.Precision) device.Type { return device.Float32 }

// Host reports that tensors are in the host's memory.
func (d *Device) Host() bool { return true }

// Alloc returns memory that begins where a cache line does.
func (d *Device) Alloc(t device.Type, n int) device.Tensor {
	const line = 64
	if n == 0 {
		return device.At(t, nil, 0)
	}
	if n < 0 {
		panic(fmt.Sprintf("cpu: memory for %d elements", n))
	}
	bytes := make([]byte, n*t.Size()+line)
	base := unsafe.Pointer(&bytes[0])
	base = unsafe.Add(base, (line-uintptr(base)%line)%line)
	useHugePages(bytes)
	return device.At(t, base, n)
}

// Write copies from the host.
func (d *Device) Write(dst device.Tensor, src []float32) {
	sameLength("write", dst.Len(), len(src))
	copy(dst.Floats(), src)
}

// WriteInts copies from the host.
func (d *Device) WriteInts(dst device.Tensor, src []int32) {
	sameLength("write", dst.Len(), len(src))
	copy(dst.Ints(), src)
}

// Read copies to the host.
func (d *Device) Read(dst []float32, src device.Tensor) {
	sameLength("read", len(dst), src.Len())
	copy(dst, src.Floats())
}

// ReadInts copies to the host.
func (d *Device) ReadInts(dst []int32, src device.Tensor) {
	sameLength("read", len(dst), src.Len())
	copy(dst, src.Ints())
}

// Zero clears a tensor.
func (d *Device) Zero(t device.Tensor) {
	clear(unsafe.Slice((*byte)(t.Base()), t.Len()*t.Type().Size()))
}

// Copy copies tensors of one type and length.
func (d *Device) Copy(dst, src device.Tensor) {
	sameLength("copy", dst.Len(), src.Len())
	if dst.Type() != src.Type() {
		panic(fmt.Sprintf("cpu: copy %v to %v", src.Type(), dst.Type()))
	}
	n := dst.Len() * dst.Type().Size()
	copy(unsafe.Slice((*byte)(dst.Base()), n), unsafe.Slice((*byte)(src.Base()), n))
}

// sameLength panics unless all lengths are equal.
func sameLength(what string, first int, rest ...int) {
	for _, n := range rest {
		if n != first {
			panic(fmt.Sprintf("cpu: %s tensors of %d and %d elements", what, first, n))
		}
	}
}

// whole panics unless m is row-major without gaps, and returns its elements.
func whole(what string, m device.Matrix) []float32 {
	if !m.Whole() {
		panic(fmt.Sprintf("cpu: %s is %dx%d with strides %d and %d and %d elements, want a whole matrix", what, m.Rows, m.Cols, m.RowStride, m.ColStride, m.Data.Len()))
	}
	return m.Data.Floats()
}
