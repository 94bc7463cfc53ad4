//go:build cuda

package engine

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Options configure a device.
type Options struct {
	// BLAS contains the files to try as cuBLASLt. If it is empty, the dynamic linker searches for
	// the library.
	BLAS []string
	// SeparateAllocations makes each tensor a separate driver allocation, so that compute-sanitizer or the
	// simulator detects out-of-bounds accesses. It costs memory and time.
	SeparateAllocations bool
	// Disabled contains the fusions that matrix multiplications do not use.
	Disabled Fusion
	// Attention selects the instructions of attention in bfloat16. If they are not available, it
	// uses the kernels for all GPUs, and Device.Fallback returns the reason.
	Attention Attention
}

// Device is a GPU.
type Device struct {
	gpu            *driver.GPU
	options        Options
	stream         driver.Stream
	pool           *driver.Pool
	modules        []*driver.Module
	functions      map[string]*driver.Function
	args           driver.Args
	last           operation // in progress
	before         operation // last operation that was enqueued in the stream
	staging        staging
	readings       []*reading
	products       products
	scratch        [scratchUses]scratch
	group          group
	shared         int   // maximum shared memory of a block in bytes
	largestKeptRow int   // bytes of shared memory that cross_entropy_bf16 may use
	hopper         bool  // the kernels for Hopper are loaded
	fallback       error // reason why attention does not use them, unless that is the default
}

var _ device.Device = (*Device)(nil)

// Open opens a device on a GPU, which must remain open until Close.
func Open(gpu *driver.GPU, o Options) (*Device, error) {
	d := &Device{gpu: gpu, options: o, pool: driver.NewPool(), functions: map[string]*driver.Function{}}
	d.products.algorithms.Platform = Platform{GPU: gpu.Name, Capability: fmt.Sprintf("%d.%d", gpu.Major, gpu.Minor), Processors: gpu.Processors}
	d.pool.SeparateAllocations = o.SeparateAllocations
	entered, err := gpu.Enter()
	if err != nil {
		return nil, err
	}
	defer entered.Leave()
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open GPU %d (%s): %w", gpu.Ordinal, gpu.Name, err), d.close())
	}
	return d, nil
}

func (d *Device) open() error {
	if d.gpu.Major < 8 {
		return fmt.Errorf("its compute capability is %d.%d, but the kernels require 8.0", d.gpu.Major, d.gpu.Minor)
	}
	var err error
	if d.shared, err = d.gpu.SharedMemory(); err != nil {
		return err
	}
	if d.stream, err = driver.NewStream(0); err != nil {
		return err
	}
	if err := d.load("updates"); err != nil { // always needed, and detects a driver that is too old for the PTX
		return err
	}
	if d.options.Attention == WGMMA && !d.isHopper() {
		d.fallback = d.fallbackError(fmt.Errorf("its compute capability is %d.%d, and only 9.0 has wgmma", d.gpu.Major, d.gpu.Minor))
	}
	if err := d.staging.open(); err != nil {
		return err
	}
	return d.products.open(d.options.BLAS)
}

// Close waits for all operations and releases all memory of the device.
func (d *Device) Close() error {
	entered, err := d.gpu.Enter()
	if err != nil {
		return err
	}
	defer entered.Leave()
	return d.close()
}

func (d *Device) close() error {
	var errs []error
	if d.stream != (driver.Stream{}) {
		errs = append(errs, d.stream.Synchronize(), d.stream.Close())
	}
	for _, r := range d.readings {
		errs = append(errs, r.close())
	}
	errs = append(errs, d.group.close(), d.products.close(), d.staging.close(), d.pool.Close())
	for _, m := range d.modules {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Name returns the name of the GPU and its UUID, with which an administrator can identify it.
func (d *Device) Name() string {
	return fmt.Sprintf("cuda %d, %s, %s", d.gpu.Ordinal, d.gpu.Name, d.gpu.UUID)
}

// Stored returns BFloat16 if matrix multiplications would round the values.
func (d *Device) Stored(p device.Precision) device.Type {
	if p == device.BF16 {
		return device.BFloat16
	}
	return device.Float32
}

// Host reports that tensors are not in host memory.
func (d *Device) Host() bool { return false }

// Accelerator returns the device.
func (d *Device) Accelerator() device.Accelerator { return d }

// Bind binds the GPU to the calling goroutine's thread.
func (d *Device) Bind() (unbind func(), err error) { return d.gpu.Bind() }

// Stream returns the stream of all operations, for communication. Between Begin and End, it
// contains only the operations before the last Flush.
func (d *Device) Stream() driver.Stream { return d.stream }

// operation describes an operation for failures: the name of a kernel or call, and its shape.
type operation struct {
	name  string
	shape [4]int
	n     int
}

func (o operation) String() string {
	text := o.name
	for i, v := range o.shape[:o.n] {
		text += fmt.Sprintf("%s%d", [...]string{" of ", "x", "x", "x"}[i], v)
	}
	return text
}

// enter begins an operation. All driver calls must be between enter and Leave.
func (d *Device) enter(name string, shape ...int) driver.Entered {
	d.last = operation{name: name}
	d.last.n = copy(d.last.shape[:], shape)
	entered, err := d.gpu.Enter()
	d.check(err)
	return entered
}

// check panics if err is not nil: the operation in progress has failed, or an earlier one whose
// error is detected now.
func (d *Device) check(err error) {
	if err == nil {
		return
	}
	what, err := locateFailure(err, d.last, d.before, func() error {
		_, err := d.stream.Done()
		return err
	})
	panic(&device.Failure{Device: d.Name(), Operation: what, Err: err})
}

// locateFailure returns the operation of a failure, for messages, and its cause. An error that an
// earlier kernel may have caused names both operations. cuBLASLt reports such an error of the
// driver only as a status of its own; query returns the driver's error.
func locateFailure(err error, last, before operation, query func() error) (string, error) {
	var status blaslt.Status
	if errors.As(err, &status) {
		if cause := query(); driver.IsSticky(cause) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	if driver.IsSticky(err) {
		return fmt.Sprintf("detected in %v, after %v", last, before), err
	}
	return last.String(), err
}

// threads is the block size of kernels over n elements, and maxBlocks their maximum number of
// blocks.
const (
	threads   = 256
	maxBlocks = 2048
)

// gridFor returns the launch of such a kernel.
func gridFor(n int) driver.Launch {
	return driver.Launch{Grid: driver.Dim{X: min((n+threads-1)/threads, maxBlocks)}, Block: driver.Dim{X: threads}}
}

// blocks returns a launch of n blocks.
func blocks(n int) driver.Launch {
	return driver.Launch{Grid: driver.Dim{X: n}, Block: driver.Dim{X: threads}}
}

// at returns the address of a tensor.
func at(t device.Tensor) driver.Ptr { return driver.Ptr(t.Addr()) }

// Tensor returns a tensor at an address. The address is not a Go pointer, so the garbage collector
// ignores it.
func Tensor(t device.Type, p driver.Ptr, n int) device.Tensor {
	return device.At(t, *(*unsafe.Pointer)(unsafe.Pointer(&p)), n)
}

// floats, halves, and ints return the address of a tensor of that type.
func floats(t device.Tensor) driver.Ptr { return typed(t, device.Float32) }
func halves(t device.Tensor) driver.Ptr { return typed(t, device.BFloat16) }
func ints(t device.Tensor) driver.Ptr   { return typed(t, device.Int32) }

// stored returns the address of a Float32 or BFloat16 tensor.
func stored(t device.Tensor) driver.Ptr {
	if t.Type() == device.BFloat16 {
		return at(t)
	}
	return floats(t)
}

// kernelFor returns the name of the kernel for a tensor: float for Float32, narrow for BFloat16.
func kernelFor(t device.Tensor, float, narrow string) string {
	if t.Type() == device.BFloat16 {
		return narrow
	}
	return float
}

func typed(t device.Tensor, want device.Type) driver.Ptr {
	if t.Len() > 0 && t.Type() != want {
		panic(fmt.Sprintf("engine: tensor has type %v, want %v", t.Type(), want))
	}
	return at(t)
}

// sameType panics unless all tensors have the same element type.
func sameType(what string, first device.Tensor, rest ...device.Tensor) {
	for _, t := range rest {
		if t.Type() != first.Type() {
			panic(fmt.Sprintf("engine: %s tensors of %v and %v", what, first.Type(), t.Type()))
		}
	}
}

// sameLength panics unless all lengths are equal.
func sameLength(what string, first int, rest ...int) {
	for _, n := range rest {
		if n != first {
			panic(fmt.Sprintf("engine: %s tensors of %d and %d elements", what, first, n))
		}
	}
}

// whole returns the address of the elements of m. It panics unless m is Float32 and row-major
// without gaps. wholeStored also accepts BFloat16.
func whole(what string, m device.Matrix) driver.Ptr {
	wholeStored(what, m)
	return floats(m.Data)
}

func wholeStored(what string, m device.Matrix) driver.Ptr {
	if !m.Whole() {
		panic(fmt.Sprintf("engine: %s is %dx%d with strides %d and %d and %d elements, want a whole matrix", what, m.Rows, m.Cols, m.RowStride, m.ColStride, m.Data.Len()))
	}
	return stored(m.Data)
}

// flag returns v as an integer for a kernel.
func flag(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}
