//go:build cuda

package engine

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/kernels"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Options are how a device works.
type Options struct {
	// BLAS are files to try as cuBLASLt; empty is where the dynamic linker looks.
	BLAS []string
	// Tune has the best algorithm of a product measured when its shape is first seen,
	// instead of taken from cuBLASLt's own judgement. Another run may choose another
	// one, which adds in another order.
	Tune bool
	// Apart has the driver know each tensor by itself, so that compute-sanitizer, or the
	// simulator's, finds what reaches beyond one. It takes more memory and time.
	Apart bool
	// WGMMA asks for attention in bfloat16 by the instructions that only Hopper has.
	// Where it cannot be had it is that of other GPUs, and Device.Unmet says why.
	WGMMA bool
}

// Device is a GPU.
type Device struct {
	gpu       *driver.GPU
	options   Options
	stream    driver.Stream
	pool      *driver.Pool
	modules   []*driver.Module
	functions map[string]*driver.Function
	args      driver.Args
	last      operation // under way
	before    operation // the last that the stream was asked for
	staging   staging
	readings  []*reading
	products  products
	scratch   [scratchUses]scratch
	group     group
	shared    int   // bytes that a block may ask for
	hopper    bool  // the kernels for Hopper are loaded
	unmet     error // why not, if they were asked for
}

var _ device.Late = (*Device)(nil)

// Open opens a device on a GPU, which must stay open until Close.
func Open(gpu *driver.GPU, o Options) (*Device, error) {
	d := &Device{gpu: gpu, options: o, pool: driver.NewPool(), functions: map[string]*driver.Function{}}
	d.pool.Apart = o.Apart
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
		return fmt.Errorf("its compute capability is %d.%d, and the kernels need 8.0", d.gpu.Major, d.gpu.Minor)
	}
	var err error
	if d.shared, err = d.gpu.SharedMemory(); err != nil {
		return err
	}
	if d.stream, err = driver.NewStream(0); err != nil {
		return err
	}
	for _, name := range kernels.Modules() {
		if err := d.load(name); err != nil {
			return err
		}
	}
	if d.options.WGMMA {
		d.unmet = d.loadHopper()
	}
	if err := d.staging.open(); err != nil {
		return err
	}
	return d.products.open(d.options.BLAS)
}

// Close waits for the operations and frees all memory of the device.
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

// Name is that of the GPU, and its UUID, by which an administrator finds it.
func (d *Device) Name() string {
	return fmt.Sprintf("cuda %d, %s, %s", d.gpu.Ordinal, d.gpu.Name, d.gpu.UUID)
}

// Stored is BFloat16 with products that would round it.
func (d *Device) Stored(p device.Precision) device.Type {
	if p == device.BF16 {
		return device.BFloat16
	}
	return device.Float32
}

// Host reports that tensors are not in the host's memory.
func (d *Device) Host() bool { return false }

// Stream is the one that all operations are in, for communication. Between Begin and End
// it has those from before the last Flush.
func (d *Device) Stream() driver.Stream { return d.stream }

// operation is what failures name: a kernel or call, and the numbers of its shape.
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

// enter begins an operation: whatever calls the driver is between it and Leave.
func (d *Device) enter(name string, shape ...int) driver.Entered {
	d.last = operation{name: name}
	d.last.n = copy(d.last.shape[:], shape)
	entered, err := d.gpu.Enter()
	d.check(err)
	return entered
}

// check panics if the operation under way has failed, or one before it whose failure is
// noticed now.
func (d *Device) check(err error) {
	if err == nil {
		return
	}
	what := d.last.String()
	for _, late := range []driver.Code{driver.LaunchFailed, driver.IllegalAddress, driver.ECCUncorrectable} {
		if errors.Is(err, late) {
			what = fmt.Sprintf("noticed in %v, after %v", d.last, d.before)
		}
	}
	panic(&device.Failure{Device: d.Name(), Operation: what, Err: err})
}

// threads of a block of kernels over n elements, which have at most mostBlocks.
const (
	threads    = 256
	mostBlocks = 2048
)

// over is the launch of such a kernel.
func over(n int) driver.Launch {
	return driver.Launch{Grid: driver.Dim{X: min((n+threads-1)/threads, mostBlocks)}, Block: driver.Dim{X: threads}}
}

// blocks is a launch of n blocks.
func blocks(n int) driver.Launch {
	return driver.Launch{Grid: driver.Dim{X: n}, Block: driver.Dim{X: threads}}
}

// at is where a tensor is.
func at(t device.Tensor) driver.Ptr { return driver.Ptr(uintptr(t.Base())) }

// tensor is the opposite. The address is no Go pointer, and the garbage collector
// leaves it alone.
func tensor(t device.Type, p driver.Ptr, n int) device.Tensor {
	return device.At(t, *(*unsafe.Pointer)(unsafe.Pointer(&p)), n)
}

// floats and ints are where a tensor of that type is.
func floats(t device.Tensor) driver.Ptr { return typed(t, device.Float32) }
func ints(t device.Tensor) driver.Ptr   { return typed(t, device.Int32) }

// stored is where a tensor of numbers is.
func stored(t device.Tensor) driver.Ptr {
	if t.Type() == device.BFloat16 {
		return at(t)
	}
	return floats(t)
}

// of is the kernel for a tensor of numbers: the first for Float32, the second for BFloat16.
func of(t device.Tensor, float, narrow string) string {
	if t.Type() == device.BFloat16 {
		return narrow
	}
	return float
}

func typed(t device.Tensor, want device.Type) driver.Ptr {
	if t.Len() > 0 && t.Type() != want {
		panic(fmt.Sprintf("engine: a tensor of %v where one of %v is wanted", t.Type(), want))
	}
	return at(t)
}

// sameType panics unless all tensors have elements of one type.
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

// whole panics unless m is row-major without gaps and of Float32, and returns where its
// elements are. wholeStored is likewise of a matrix that may be of BFloat16.
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

// flag is a truth for a kernel.
func flag(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}
