package gemm

import "fmt"

// Start is the start value of the sums of a product: [Zero], [Accumulate], or [Bias]. The zero
// value is Zero.
type Start struct {
	from origin
	bias []float32
}

type origin uint8

const (
	fromZero origin = iota
	fromC
	fromBias
)

// Zero starts from zero: C = A·B.
func Zero() Start { return Start{} }

// Accumulate starts from the elements of C: C += A·B.
func Accumulate() Start { return Start{from: fromC} }

// Bias starts every row from the given row: C = bias + A·B. It has one element per column of C and
// must not overlap C. It costs no more than Zero.
func Bias(row []float32) Start { return Start{from: fromBias, bias: row} }

// check panics unless s is valid for c.
func (s Start) check(c Matrix) {
	if s.from == fromBias && len(s.bias) != c.Cols {
		panic(fmt.Sprintf("gemm: bias has %d elements, C is %dx%d", len(s.bias), c.Rows, c.Cols))
	}
}

// in returns the matrix of start values for c. It has no data if c starts from zero.
func (s Start) in(c Matrix) Matrix {
	switch s.from {
	case fromC:
		return c
	case fromBias:
		return Matrix{Data: s.bias, Rows: c.Rows, Cols: c.Cols, RowStride: 0, ColStride: 1}
	default:
		return Matrix{}
	}
}

// fill sets c to its start values: a product without terms.
func (s Start) fill(c Matrix) {
	for i := range c.Rows {
		row := c.Data[i*c.RowStride:][:c.Cols]
		switch s.from {
		case fromZero:
			clear(row)
		case fromBias:
			copy(row, s.bias)
		}
	}
}
