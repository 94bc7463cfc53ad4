// Package device defines the operations that a trainer needs from a CPU or GPU: memory, and
// operations on it. Models, losses, and optimizers use only [Device], so they run on every
// implementation, such as packages trainer/cpu and trainer/cuda/engine.
//
// Memory is planned. A [Tensor] is allocated with [Memory.Alloc] before the first step, and no
// operation allocates. Workspace is part of a planned operation ([Attention], [Convolution]), which
// is also created before the first step.
//
// Operations may run asynchronously, in the order of their calls. [Memory.Read] waits for its
// tensor. Arguments that do not match cause a panic, because they are errors in the program and not
// in its input. Token IDs and labels are not checked and must be in range. A device that fails
// panics with a [Failure]. Matrices must be Whole unless documented otherwise. If an operation
// documents that the order of a sum is fixed, its result is bit-identical for any number of
// threads. A sum that accumulates starts from the present value.
//
// Floating-point tensors are Float32. If Device.Stored returns BFloat16, the tensors that an
// operation documents as stored may be BFloat16: they are widened when they are read, results are
// rounded when they are written, and the arithmetic is float32.
//
// Package device/conformance tests every implementation against the same float64 reference.
package device

// A Device is a CPU or a GPU with its memory.
type Device interface {
	// Name returns the name of the device for messages.
	Name() string
	// Stored returns the type in which models store activations between operations for a precision
	// of matrix multiplications. It is BFloat16 if that saves memory and the matrix multiplications
	// would round the values anyway; otherwise it is Float32.
	Stored(p Precision) Type
	// Accelerator returns the capabilities of a device with its own memory, or nil if Host returns
	// true.
	Accelerator() Accelerator
	Memory
	Dense
	Elementwise
	Normalization
	Sequence
	Images
	Losses
	Updates
	Steps
}

// Memory allocates and copies tensors.
type Memory interface {
	// Host reports whether tensors are in memory that the host can access, so that Tensor.Floats
	// returns the tensor itself.
	Host() bool
	// Alloc returns a zeroed tensor of n elements, aligned for the device. Host memory is released
	// when it is no longer referenced, other memory when the device is closed.
	Alloc(t Type, n int) Tensor
	// Write copies from the host. dst is Float32 and has the length of src.
	Write(dst Tensor, src []float32)
	// WriteInts copies from the host to an Int32 tensor.
	WriteInts(dst Tensor, src []int32)
	// Read copies to the host, after all preceding operations.
	Read(dst []float32, src Tensor)
	// ReadInts copies an Int32 tensor to the host, after all preceding operations.
	ReadInts(dst []int32, src Tensor)
	// Copy copies between tensors of equal type and length.
	Copy(dst, src Tensor)
	// Zero clears a tensor.
	Zero(t Tensor)
	// Checksum returns a checksum of the bits of a Float32 tensor, after all preceding operations. It
	// copies at most a few kilobytes to the host. Devices of different kinds have different checksums.
	Checksum(t Tensor) uint64
}

// An Accelerator is a device with its own memory, such as a GPU.
type Accelerator interface {
	// Bind locks the calling goroutine to its thread and binds the device to it, so that operations
	// of this goroutine need not do so each time. unbind must be called on the same goroutine.
	Bind() (unbind func(), err error)
	// Begin and End enclose operations that the device may defer and run together, for example as a
	// CUDA graph. It runs them earlier if the host reads a result.
	Begin()
	End()
	// Available returns the number of bytes of free memory.
	Available() int64
	// LazyBytes returns the number of bytes that the device allocates on first use in addition to
	// tensors.
	LazyBytes() int64
	// Fallback returns an error that names the options that the device or its driver does not support,
	// and their replacements, or nil.
	Fallback() error
	// Close waits for all operations and releases the device.
	Close() error
	// Pin returns pinned host memory for n elements, uninitialized, to which Read copies a tensor
	// directly and at full speed. It remains valid until the device is closed. If pinned memory is
	// not available, Pin returns an error, and the device does not fail.
	Pin(n int) ([]float32, error)
}

// Fill calls fill to write the elements of a Float32 tensor.
func Fill(m Memory, t Tensor, fill func([]float32)) {
	if m.Host() {
		fill(t.Floats())
		return
	}
	v := make([]float32, t.Len())
	fill(v)
	m.Write(t, v)
}

// Floats returns the elements of a Float32 tensor on the host: the tensor's memory if the host can
// access it, otherwise a copy.
func Floats(m Memory, t Tensor) []float32 {
	if m.Host() {
		return t.Floats()
	}
	v := make([]float32, t.Len())
	m.Read(v, t)
	return v
}
