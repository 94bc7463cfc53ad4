// Package cpu implements [device.Device] on the CPU cores of this machine.
//
// Matrix multiplications are in package gemm, elementwise and row-wise operations in package vec.
// Both use the fastest instructions that the CPU supports; in float32, all give the same bits. An
// operation is divided among threads by rows, columns, or heads. Sums are divided only at fixed
// boundaries, so that results do not depend on the number of threads. Operations are synchronous,
// allocate nothing, and do not retain their arguments.
//
// Tensors are allocated on the Go heap. Large ones use huge pages if the kernel supports them.
//
// The package does not pin threads and does not account for other processes on the same cores.
package cpu

import (
	"fmt"
	"hash/crc32"
	"runtime"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/gemm"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// Device is the CPU. It runs one operation at a time.
type Device struct {
	unit                *vec.Unit
	products            *gemm.Workspace   // for matrix multiplications that are divided among threads
	perThreadWorkspaces []*gemm.Workspace // one per thread, for matrix multiplications within a divided operation; see perThread
	pool                pool

	// Each field holds the arguments of an operation in progress, where the threads read them. It
	// is cleared after the operation, because it would keep tensors alive.
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

// New returns a device that uses at most the given number of threads, or GOMAXPROCS if it is zero
// or less.
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

// perThread returns a workspace for each thread. They are allocated when an operation that needs
// them is planned, because each takes several megabytes.
func (d *Device) perThread() []*gemm.Workspace {
	for len(d.perThreadWorkspaces) < len(d.pool.threads) {
		d.perThreadWorkspaces = append(d.perThreadWorkspaces, gemm.NewWorkspace(1))
	}
	return d.perThreadWorkspaces
}

// Name returns "cpu" and the instruction set in use.
func (d *Device) Name() string { return "cpu, " + d.products.Kernel() }

// Stored returns Float32: matrix multiplications round operands when they read them.
func (d *Device) Stored(device.Precision) device.Type { return device.Float32 }

// Host reports that tensors are in host memory.
func (d *Device) Host() bool { return true }

// Accelerator returns nil.
func (d *Device) Accelerator() device.Accelerator { return nil }

// Alloc returns zeroed memory that is aligned to a cache line.
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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of a tensor.
func (d *Device) Checksum(t device.Tensor) uint64 {
	return uint64(crc32.Checksum(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t.Floats()))), 4*t.Len()), castagnoli))
}

// Copy copies between tensors of equal type and length.
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

// whole returns the elements of m. It panics unless m is row-major without gaps.
func whole(what string, m device.Matrix) []float32 {
	if !m.Whole() {
		panic(fmt.Sprintf("cpu: %s is %dx%d with strides %d and %d and %d elements, want a whole matrix", what, m.Rows, m.Cols, m.RowStride, m.ColStride, m.Data.Len()))
	}
	return m.Data.Floats()
}
