package device

import (
	"fmt"
	"unsafe"
)

// Type is what the elements of a tensor are.
type Type uint8

// The types of elements.
const (
	Float32  Type = iota
	BFloat16      // upper half of a float32, for what is sent or stored (Device.Stored)
	Int32         // tokens and labels
)

// Size is the bytes of one element.
func (t Type) Size() int {
	if t == BFloat16 {
		return 2
	}
	return 4
}

// String is the type's name in messages.
func (t Type) String() string {
	switch t {
	case Float32:
		return "float32"
	case BFloat16:
		return "bfloat16"
	case Int32:
		return "int32"
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Tensor is a run of elements in a device's memory. The zero Tensor has none.
// It keeps memory of the Go heap alive, and is a plain address for any other.
type Tensor struct {
	base unsafe.Pointer
	n    int
	kind Type
}

// At is the tensor of n elements at an address of the device.
func At(t Type, base unsafe.Pointer, n int) Tensor { return Tensor{base, n, t} }

// Host is the tensor over numbers in the host's memory.
func Host(v []float32) Tensor { return Tensor{unsafe.Pointer(unsafe.SliceData(v)), len(v), Float32} }

// HostInts is the tensor over tokens or labels in the host's memory.
func HostInts(v []int32) Tensor { return Tensor{unsafe.Pointer(unsafe.SliceData(v)), len(v), Int32} }

// Len is the number of elements.
func (t Tensor) Len() int { return t.n }

// Type is what they are.
func (t Tensor) Type() Type { return t.kind }

// Base is the address of the first.
func (t Tensor) Base() unsafe.Pointer { return t.base }

// Slice is the elements from first to before end.
func (t Tensor) Slice(first, end int) Tensor {
	if first < 0 || end < first || end > t.n {
		panic(fmt.Sprintf("device: elements %d to %d of a tensor of %d", first, end, t.n))
	}
	if first == end {
		return Tensor{kind: t.kind} // no address: it could be the one after the memory
	}
	return Tensor{unsafe.Add(t.base, first*t.kind.Size()), end - first, t.kind}
}

// Floats is the elements of a Float32 tensor in memory that the host can address.
func (t Tensor) Floats() []float32 {
	t.is(Float32)
	return unsafe.Slice((*float32)(t.base), t.n)
}

// Ints is likewise for Int32.
func (t Tensor) Ints() []int32 {
	t.is(Int32)
	return unsafe.Slice((*int32)(t.base), t.n)
}

// Halves is likewise for BFloat16, as bits.
func (t Tensor) Halves() []uint16 {
	t.is(BFloat16)
	return unsafe.Slice((*uint16)(t.base), t.n)
}

func (t Tensor) is(want Type) {
	if t.n > 0 && t.kind != want {
		panic(fmt.Sprintf("device: a tensor of %v where one of %v is wanted", t.kind, want))
	}
}

// Matrix is a view of a tensor: element (i, j) is element
// i*RowStride+j*ColStride of Data.
type Matrix struct {
	Data                 Tensor
	Rows, Cols           int
	RowStride, ColStride int
}

// Rows is the row-major matrix of the first rows*cols elements of t.
func Rows(t Tensor, rows, cols int) Matrix {
	return Matrix{t.Slice(0, rows*cols), rows, cols, cols, 1}
}

// T is the transpose, over the same elements.
func (m Matrix) T() Matrix {
	return Matrix{m.Data, m.Cols, m.Rows, m.ColStride, m.RowStride}
}

// Sub is the rows from row first to before row end, and the columns likewise.
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

// Packed returns the matrix, or its transpose where that is how it lies in memory, and
// from which element to which the rows of a copy in bfloat16 are apart: a multiple of 8,
// which tensor cores like.
func (m Matrix) Packed() (rows Matrix, pitch int) {
	if m.RowStride == 1 && m.ColStride != 1 {
		m = m.T()
	}
	return m, (m.Cols + 7) / 8 * 8
}

// Whole reports that the matrix is row-major without gaps and Data is all of it.
func (m Matrix) Whole() bool {
	return m.ColStride == 1 && m.RowStride == m.Cols && m.Data.n == m.Rows*m.Cols
}
