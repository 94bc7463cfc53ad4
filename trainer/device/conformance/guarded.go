package conformance

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Operands and results are surrounded by a NaN that propagates into every result, and by an invalid
// token ID.
const (
	aroundFloats = 0x7fc12345
	aroundInts   = 0x7fffff01
)

// margin is the minimum number of elements on each side of a tensor.
const margin = 16

// guardedTensor is memory that contains a tensor, with its contents before the test.
type guardedTensor struct {
	memory device.Tensor
	before []uint32
	free   []bool // elements that the test may change; nil if it must not change any
}

// layout is the memory layout of a matrix: step is the distance of elements in a row, and pad is
// the number of elements between rows; or both for the transpose. The zero layout is Whole.
type layout struct {
	pad, step  int
	transposed bool
}

var (
	whole      = layout{}
	padded     = layout{pad: 3}
	transposed = layout{transposed: true}
	apart      = layout{transposed: true, pad: 5}
	spread     = layout{pad: 2, step: 3}
)

// strides returns the strides of a matrix.
func (l layout) strides(rows, cols int) (row, col int) {
	if l.transposed {
		col, row = layout{pad: l.pad, step: l.step}.strides(cols, rows)
		return row, col
	}
	step := max(l.step, 1)
	return cols*step + l.pad, step
}

// input returns a tensor that the test may not change.
func (s *suite) input(v []float32) device.Tensor {
	return s.place(len(v), bits(v), nil, device.Float32)
}

// result returns a tensor for results that initially holds v.
func (s *suite) result(v []float32) device.Tensor {
	return s.place(len(v), bits(v), all(len(v)), device.Float32)
}

// empty returns a tensor for n results that initially holds NaN.
func (s *suite) empty(n int) device.Tensor { return s.result(nans(n)) }

// tokens returns an Int32 tensor that the test may not change.
func (s *suite) tokens(v []int32) device.Tensor {
	return s.place(len(v), intBits(v), nil, device.Int32)
}

// emptyInts returns an Int32 tensor for results.
func (s *suite) emptyInts(n int) device.Tensor {
	v := make([]uint32, n)
	for i := range v {
		v[i] = aroundInts
	}
	return s.place(n, v, all(n), device.Int32)
}

// inputMatrix returns a matrix of rows*cols values in row-major order that the test may not change.
func (s *suite) inputMatrix(v []float32, rows, cols int, l layout) device.Matrix {
	return s.matrix(v, rows, cols, l, false)
}

// resultMatrix returns such a matrix for results.
func (s *suite) resultMatrix(v []float32, rows, cols int, l layout) device.Matrix {
	return s.matrix(v, rows, cols, l, true)
}

// emptyMatrix returns a Whole matrix for results that initially holds NaN.
func (s *suite) emptyMatrix(rows, cols int) device.Matrix {
	return s.resultMatrix(nans(rows*cols), rows, cols, whole)
}

func (s *suite) matrix(v []float32, rows, cols int, l layout, free bool) device.Matrix {
	return s.matrixOf(device.Float32, v, rows, cols, l, free)
}

func (s *suite) matrixOf(kind device.Type, v []float32, rows, cols int, l layout, free bool) device.Matrix {
	if len(v) != rows*cols {
		panic("conformance: numbers do not fill the matrix")
	}
	m := device.Matrix{Rows: rows, Cols: cols}
	m.RowStride, m.ColStride = l.strides(rows, cols)
	n := (rows-1)*m.RowStride + (cols-1)*m.ColStride + 1 // no more than required
	data, isFree := make([]uint32, n), make([]bool, n)
	for i := range data {
		data[i] = aroundFloats
	}
	for i := range rows {
		for j := range cols {
			at := i*m.RowStride + j*m.ColStride
			data[at], isFree[at] = math.Float32bits(v[i*cols+j]), free
		}
	}
	m.Data = s.place(n, data, isFree, kind)
	return m
}

// storedMatrix returns a Whole matrix of the stored type.
func (s *suite) storedMatrix(v []float32, rows, cols int, free bool) device.Matrix {
	return s.matrixOf(s.stored, v, rows, cols, whole, free)
}

// place puts a tensor in the middle of a larger allocation.
func (s *suite) place(n int, data []uint32, free []bool, kind device.Type) device.Tensor {
	s.Helper()
	first := margin + s.r.IntN(margin)
	if s.aligned {
		first = margin
	}
	h := guardedTensor{s.d.Alloc(kind, first+n+margin), make([]uint32, first+n+margin), make([]bool, first+n+margin)}
	for i := range h.before {
		h.before[i] = aroundFloats
		if kind == device.Int32 {
			h.before[i] = aroundInts
		}
	}
	copy(h.before[first:], data)
	copy(h.free[first:], free)
	switch kind {
	case device.Int32:
		s.d.WriteInts(h.memory, intsOf(h.before))
	case device.BFloat16:
		wide := s.d.Alloc(device.Float32, len(h.before))
		s.d.Write(wide, floatsOf(h.before))
		s.d.Cast(h.memory, wide)
		h.before = s.bits(h.memory) // the device chooses which NaN a converted NaN becomes
	default:
		s.d.Write(h.memory, floatsOf(h.before))
	}
	s.guarded = append(s.guarded, h)
	if s.fence != nil {
		s.fence(h.memory.Slice(0, first), true)
		s.fence(h.memory.Slice(first+n, h.memory.Len()), true)
	}
	return h.memory.Slice(first, first+n)
}

// untouched fails the test if anything except results has changed.
func (s *suite) untouched() {
	s.Helper()
	for _, h := range s.guarded {
		if s.fence != nil {
			s.fence(h.memory, false)
		}
		for i, v := range s.bits(h.memory) {
			if !h.free[i] && v != h.before[i] {
				s.Errorf("element %d of %d in %v memory has changed from %#x to %#x: it is an operand, or outside of the result",
					i, len(h.before), h.memory.Type(), h.before[i], v)
				break
			}
		}
	}
}

// floats reads a tensor.
func (s *suite) floats(t device.Tensor) []float32 {
	if t.Type() == device.BFloat16 {
		wide := s.d.Alloc(device.Float32, t.Len())
		s.d.Cast(wide, t)
		t = wide
	}
	v := make([]float32, t.Len())
	s.d.Read(v, t)
	return v
}

// numbers reads a matrix in row-major order.
func (s *suite) numbers(m device.Matrix) []float32 {
	data, v := s.floats(m.Data), make([]float32, m.Rows*m.Cols)
	for i := range v {
		v[i] = data[i/m.Cols*m.RowStride+i%m.Cols*m.ColStride]
	}
	return v
}

// ints reads an Int32 tensor.
func (s *suite) ints(t device.Tensor) []int32 {
	v := make([]int32, t.Len())
	s.d.ReadInts(v, t)
	return v
}

// bits reads a tensor of any type.
func (s *suite) bits(t device.Tensor) []uint32 {
	if t.Type() == device.Int32 {
		return intBits(s.ints(t))
	}
	return bits(s.floats(t))
}

func bits(v []float32) []uint32 {
	out := make([]uint32, len(v))
	for i, x := range v {
		out[i] = math.Float32bits(x)
	}
	return out
}

func floatsOf(v []uint32) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = math.Float32frombits(x)
	}
	return out
}

func intBits(v []int32) []uint32 {
	out := make([]uint32, len(v))
	for i, x := range v {
		out[i] = uint32(x)
	}
	return out
}

func intsOf(v []uint32) []int32 {
	out := make([]int32, len(v))
	for i, x := range v {
		out[i] = int32(x)
	}
	return out
}

func all(n int) []bool {
	v := make([]bool, n)
	for i := range v {
		v[i] = true
	}
	return v
}

func nans(n int) []float32 { return filled(n, float32(math.NaN())) }

func filled(n int, x float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return v
}

// normal returns n samples of the standard normal distribution.
func (s *suite) normal(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(s.r.NormFloat64())
	}
	return v
}

// upTo returns n random integers from 0 to below end.
func (s *suite) upTo(n, end int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(s.r.IntN(end))
	}
	return v
}
