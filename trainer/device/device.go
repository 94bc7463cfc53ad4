// Package device says what a trainer asks of a processor: memory, and operations
// on it. Models, losses and optimisers are written against [Device] alone, so
// that they run on whatever implements it: package trainer/cpu here.
//
// Memory is planned. A [Tensor] is got from [Memory.Alloc] before the first step,
// and no operation allocates: what an operation needs beside its arguments is
// part of a planned operation ([Attention], [Convolution]) that was made before
// the first step too.
//
// Operations may run after the call that asked for them has returned, in the
// order in which they were asked for; [Memory.Read] waits for what it reads.
// Arguments that do not fit each other panic: they are errors in the program, not
// in its input; tokens and labels are not looked at, and must be in range. A device that
// cannot go on panics too, with a [Failure]. Matrices are Whole where nothing else is
// said. Where an operation says that a sum has an order, a result is the same bits
// whatever the number of threads; and a sum that is accumulated starts from what is
// there.
//
// Tensors of numbers are Float32. On a device whose Stored says BFloat16 those that an
// operation names as stored may be BFloat16: they are widened when they are read, results
// are rounded when they are written, and what is between is float32.
//
// Package device/conformance holds every implementation to the same float64
// reference.
package device

// Device is a processor with its memory.
type Device interface {
	// Name is the processor's name for messages.
	Name() string
	// Stored is the type in which models keep what one operation leaves to others, with
	// products of a precision: BFloat16 where that is less to keep, and the products
	// would round it anyhow; or Float32.
	Stored(p Precision) Type
	Memory
	Dense
	Elementwise
	Normalisation
	Sequence
	Images
	Losses
	Updates
}

// Memory holds tensors.
type Memory interface {
	// Host reports whether tensors are in memory that the host can address, so that
	// Tensor.Floats is the tensor itself.
	Host() bool
	// Alloc returns memory for n elements, all zero, aligned for the device. It
	// stays as long as something refers to it.
	Alloc(t Type, n int) Tensor
	// Write copies from the host. dst is Float32 and as long as src.
	Write(dst Tensor, src []float32)
	// WriteInts copies from the host to an Int32 tensor.
	WriteInts(dst Tensor, src []int32)
	// Read copies to the host, after all operations that were asked for before.
	Read(dst []float32, src Tensor)
	// ReadInts is likewise for Int32.
	ReadInts(dst []int32, src Tensor)
	// Copy copies tensors of one type and length.
	Copy(dst, src Tensor)
	// Zero clears a tensor.
	Zero(t Tensor)
}

// Pinner is a Memory that is not the host's, and copies to some of the host's faster than to
// the rest.
type Pinner interface {
	// Pin returns memory of the host for n numbers, with anything in them, to which Read
	// copies a tensor at once and as fast as the device can. It is there until the device is
	// closed. Where there is none, that is an error and no failure of the device.
	Pin(n int) ([]float32, error)
}

// Fill has fill write the elements of a Float32 tensor.
func Fill(m Memory, t Tensor, fill func([]float32)) {
	if m.Host() {
		fill(t.Floats())
		return
	}
	v := make([]float32, t.Len())
	fill(v)
	m.Write(t, v)
}

// Floats is the elements of a Float32 tensor on the host: themselves where that is
// possible, a copy elsewhere.
func Floats(m Memory, t Tensor) []float32 {
	if m.Host() {
		return t.Floats()
	}
	v := make([]float32, t.Len())
	m.Read(v, t)
	return v
}
