package gemm

import "fmt"

// A Matrix is a strided view: element (i, j) is Data[i*RowStride+j*ColStride].
type Matrix struct {
	Data                 []float32
	Rows, Cols           int
	RowStride, ColStride int // in elements, not negative
}

// Dense returns a row-major matrix that fills data without gaps.
func Dense(data []float32, rows, cols int) Matrix {
	return Matrix{Data: data, Rows: rows, Cols: cols, RowStride: cols, ColStride: 1}
}

// T returns the transpose of m, a view of the same elements.
func (m Matrix) T() Matrix {
	return Matrix{Data: m.Data, Rows: m.Cols, Cols: m.Rows, RowStride: m.ColStride, ColStride: m.RowStride}
}

// part returns a view of the given number of rows and columns of m, starting at (i, j). They must
// not be zero. The view of a matrix without data has no data.
func (m Matrix) part(i, j, rows, cols int) Matrix {
	if m.Data != nil {
		m.Data = m.Data[i*m.RowStride+j*m.ColStride:]
	}
	m.Rows, m.Cols = rows, cols
	return m
}

// check panics unless all elements of m are in its data. It compares quotients, because the product
// of invalid sizes could overflow.
func (m Matrix) check(name string) {
	if m.Rows < 0 || m.Cols < 0 || m.RowStride < 0 || m.ColStride < 0 {
		panic(fmt.Sprintf("gemm: %s is %dx%d with strides %d and %d", name, m.Rows, m.Cols, m.RowStride, m.ColStride))
	}
	if m.Rows == 0 || m.Cols == 0 {
		return
	}
	last := len(m.Data) - 1
	if last >= 0 && (m.RowStride == 0 || m.Rows-1 <= last/m.RowStride) {
		last -= (m.Rows - 1) * m.RowStride
		if m.ColStride == 0 || m.Cols-1 <= last/m.ColStride {
			return
		}
	}
	panic(fmt.Sprintf("gemm: %s is %dx%d with strides %d and %d, but has only %d elements",
		name, m.Rows, m.Cols, m.RowStride, m.ColStride, len(m.Data)))
}
