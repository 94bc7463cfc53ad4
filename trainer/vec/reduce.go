package vec

// The sums of float32 below have 64 partial sums: element i goes to sum i mod 64,
// in rising order, from 0. Then sums are added by halves: 32 to 63 to 0 to 31, 16
// to 31 to 0 to 15, and so on.

// Sum is the sum of x.
func (u *Unit) Sum(x []float32) float32 { return u.sum(x) }

// Dot is the sum of a*b.
func (u *Unit) Dot(a, b []float32) float32 {
	same(len(a), len(b))
	return u.dot(a, b)
}

// SumSquares is the sum of x*x in float64, where squares of float32 are exact and
// cannot overflow. It has 8 partial sums, added by halves like the others.
func (u *Unit) SumSquares(x []float32) float64 { return u.sumSquares(x) }

// Max is the largest element, NaN if any is, -Inf if there is none. Of two zeros,
// it may be either, but is the same on every processor.
func (u *Unit) Max(x []float32) float32 { return u.maximum(x) }

// ColumnSum computes dst[j], or adds to it if accumulate is set, the sum over rows
// of x[i*stride+j], for j below len(dst), one after another from the first row. x
// may end with the last element of the last row.
func (u *Unit) ColumnSum(dst, x []float32, rows, stride int, accumulate bool) {
	n := len(dst)
	checkRows(len(x), rows, n, stride)
	if n == 0 {
		return
	}
	if !accumulate {
		clear(dst)
	}
	row := func(i int) []float32 { return x[i*stride:][:n] }
	i := 0
	for ; i+4 <= rows; i += 4 {
		u.add4(dst, row(i), row(i+1), row(i+2), row(i+3))
	}
	for ; i < rows; i++ {
		u.add(dst, dst, row(i))
	}
}
