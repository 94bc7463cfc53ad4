package device

import (
	"fmt"
	"unsafe"
)

// Type is the type of the elements of a tensor.
type Type uint8

// The element types are:
const (
	Float32  Type = iota
	BFloat16      // upper half of a float32, for communication and storage (Device.Stored)
	Int32         // token IDs and labels
	Float64       // sums
)

// Size returns the size of one element in bytes.
func (t Type) Size() int {
	switch t {
	case BFloat16:
		return 2
	case Float64:
		return 8
	}
	return 4
}

// String returns the name of the type for messages.
func (t Type) String() string {
	switch t {
	case Float32:
		return "float32"
	case BFloat16:
		return "bfloat16"
	case Int32:
		return "int32"
	case Float64:
		return "float64"
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// A Tensor is a contiguous range of elements in a device's memory. The zero Tensor is empty. A
// tensor keeps memory of the Go heap alive; for other memory it is only an address.
type Tensor struct {
	base unsafe.Pointer
	n    int
	kind Type
}

// At returns a tensor of n elements at a device address.
func At(t Type, base unsafe.Pointer, n int) Tensor { return Tensor{base, n, t} }

// Host returns a tensor over values in host memory.
func Host(v []float32) Tensor { return Tensor{unsafe.Pointer(unsafe.SliceData(v)), len(v), Float32} }

// HostInts returns a tensor over token IDs or labels in host memory.
func HostInts(v []int32) Tensor { return Tensor{unsafe.Pointer(unsafe.SliceData(v)), len(v), Int32} }

// Len returns the number of elements.
func (t Tensor) Len() int { return t.n }

// Type returns the type of the elements.
func (t Tensor) Type() Type { return t.kind }

// Base returns the address of the first element.
func (t Tensor) Base() unsafe.Pointer { return t.base }

// An Addr is an address in a device's memory, which the host may be unable to access.
type Addr uintptr

// Addr returns the address of the first element for the device. It does not keep memory of the Go
// heap alive.
func (t Tensor) Addr() Addr { return Addr(t.base) }

// Bytes returns the size of the tensor in bytes.
func (t Tensor) Bytes() int { return t.n * t.kind.Size() }

// Slice returns the elements from first to before end.
func (t Tensor) Slice(first, end int) Tensor {
	if first < 0 || end < first || end > t.n {
		panic(fmt.Sprintf("device: elements %d to %d of a tensor of %d", first, end, t.n))
	}
	if first == end {
		return Tensor{kind: t.kind} // no address, because it could be the end of the memory
	}
	return Tensor{unsafe.Add(t.base, first*t.kind.Size()), end - first, t.kind}
}

// Floats returns the elements of a Float32 tensor in memory that the host can access.
func (t Tensor) Floats() []float32 {
	t.is(Float32)
	return unsafe.Slice((*float32)(t.base), t.n)
}

// Ints returns the elements of an Int32 tensor in memory that the host can access.
func (t Tensor) Ints() []int32 {
	t.is(Int32)
	return unsafe.Slice((*int32)(t.base), t.n)
}

// Halves returns the bits of a BFloat16 tensor in memory that the host can access.
func (t Tensor) Halves() []uint16 {
	t.is(BFloat16)
	return unsafe.Slice((*uint16)(t.base), t.n)
}

// Doubles returns the elements of a Float64 tensor in memory that the host can access.
func (t Tensor) Doubles() []float64 {
	t.is(Float64)
	return unsafe.Slice((*float64)(t.base), t.n)
}

func (t Tensor) is(want Type) {
	if t.n > 0 && t.kind != want {
		panic(fmt.Sprintf("device: tensor has type %v, want %v", t.kind, want))
	}
}

// A Matrix is a strided view of a tensor: element (i, j) is element i*RowStride+j*ColStride of
// Data.
type Matrix struct {
	Data                 Tensor
	Rows, Cols           int
	RowStride, ColStride int
}

// Rows returns a row-major matrix of the first rows*cols elements of t.
func Rows(t Tensor, rows, cols int) Matrix {
	return Matrix{t.Slice(0, rows*cols), rows, cols, cols, 1}
}

// T returns the transpose, a view of the same elements.
func (m Matrix) T() Matrix {
	return Matrix{m.Data, m.Cols, m.Rows, m.ColStride, m.RowStride}
}

// Sub returns the rows from first to before end and the columns from left to before right.
func (m Matrix) Sub(first, end, left, right int) Matrix {
	if first < 0 || end < first || end > m.Rows || left < 0 || right < left || right > m.Cols {
		panic(fmt.Sprintf("device: rows %d to %d and columns %d to %d of a %dx%d matrix", first, end, left, right, m.Rows, m.Cols))
	}
	at := first*m.RowStride + left*m.ColStride
	if end == first || right == left {
		at = m.Data.n
	}
	m.Data = m.Data.Slice(at, m.Data.n)
	m.Rows, m.Cols = end-first, right-left
	return m
}

// Packed returns the matrix, or its transpose if that has contiguous rows, and the row pitch of a
// copy in bfloat16: a multiple of 8 elements, which tensor cores prefer.
func (m Matrix) Packed() (rows Matrix, pitch int) {
	if m.RowStride == 1 && m.ColStride != 1 {
		m = m.T()
	}
	return m, (m.Cols + 7) / 8 * 8
}

// Whole reports whether the matrix is row-major without gaps and covers all of Data.
func (m Matrix) Whole() bool {
	return m.ColStride == 1 && m.RowStride == m.Cols && m.Data.n == m.Rows*m.Cols
}
