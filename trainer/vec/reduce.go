package vec

// The float32 sums below have 64 partial sums: element i is added to sum i mod 64, in ascending
// order, starting from 0. Then the upper half of the partial sums is added to the lower half until
// one is left: sums 32 to 63 are added to sums 0 to 31, then 16 to 31 to 0 to 15, and so on.

// Sum returns the sum of x.
func (u *Unit) Sum(x []float32) float32 { return u.sum(x) }

// Dot returns the sum of a*b.
func (u *Unit) Dot(a, b []float32) float32 {
	same(len(a), len(b))
	return u.dot(a, b)
}

// SumSquares returns the sum of x*x in float64, where squares of float32 values are exact and
// cannot overflow. It has 8 partial sums, which are also added by halves.
func (u *Unit) SumSquares(x []float32) float64 { return u.sumSquares(x) }

// Max returns the largest element, NaN if there is one, and -Inf if x is empty. Of zeros with
// different signs it may return either, but the same on every CPU.
func (u *Unit) Max(x []float32) float32 { return u.maximum(x) }

// ColumnSum stores in dst[j] the sum over rows of x[i*stride+j], for j < len(dst), or adds it if
// accumulate is set. It adds row by row, starting at the first. x may end with the last element of
// the last row.
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
