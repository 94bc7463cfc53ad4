package gemm

import "fmt"

// Start is what the sums of a product start from: [Zero], [Accumulate] or [Bias].
// The zero value is Zero.
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

// Accumulate starts from what C holds: C += A·B.
func Accumulate() Start { return Start{from: fromC} }

// Bias starts every row from the same one, which has an element for each column of
// C and shares none with it: C = bias + A·B. It costs nothing more than Zero.
func Bias(row []float32) Start { return Start{from: fromBias, bias: row} }

// check panics unless c can start so.
func (s Start) check(c Matrix) {
	if s.from == fromBias && len(s.bias) != c.Cols {
		panic(fmt.Sprintf("gemm: bias has %d elements, C is %dx%d", len(s.bias), c.Rows, c.Cols))
	}
}

// in is the matrix that c starts from, which has no data if it starts from zero.
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

// fill writes to c what it starts from: its product with no terms.
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
