// Package gemm multiplies matrices of float32, as they are or rounded to bfloat16,
// at the speed of the core: C = A·B, C += A·B and C = bias + A·B, each of A and B
// possibly transposed or a part of a larger matrix.
//
// The arithmetic of [Float32] is fixed. Every element of C is the sum over k in
// rising order, one fused multiply-add (a product and a sum with a single rounding)
// per term, starting from zero, from what C held or from a bias. AVX-512, AVX2 and
// portable code compute this same sum, and threads divide nothing but the rows or
// columns of C: so a result is the same bits whatever the processor, the number of
// workers, and the place of the element in its matrix. Which NaN stands in a result
// that is not a number is not part of this promise. [BFloat16] makes the same one,
// but for the processor.
//
// The fastest kernels that the processor has are chosen by [NewWorkspace]. They
// are assembly that internal/asmgen writes. A [Workspace] holds all memory that
// is needed, and a multiplication allocates nothing.
//
// It does not know layers or activations, does not store bfloat16 or multiply other
// types, scales nothing, and has no vector kernels for anything but amd64: elsewhere
// the portable code keeps the promise above, but not the speed.
package gemm

import "fmt"

//go:generate go run ./internal/asmgen

// minTermsPerWorker is the number of multiply-adds for which another worker is
// used: 0.1 ms of an AVX-512 core. On a virtual machine of two cores, where to wake
// a sleeping thread takes long, two workers were slower than one below this, and
// a seventh faster at it.
const minTermsPerWorker = 3 << 22

// Float32 computes C = A·B, where A is m x k, B is k x n and C is m x n, and the sums
// start from what from says. Rows of C must be contiguous (ColStride 1), and C must
// not share elements with A or B. If k is zero, A·B is zero.
//
// Only elements of C are written, nothing between its rows, and only elements of
// A and B are read. Matrices that do not fit each other or their data panic.
func Float32(ws *Workspace, c, a, b Matrix, from Start) {
	if check(c, a, b, from) {
		ws.multiply(ws.kernels.float32, false, c, a, b, from)
	}
}

// BFloat16 is Float32 with the elements of A and B each rounded to bfloat16, to
// nearest, ties to even; those too large become infinite, and a NaN stays one. The
// products, which are exact in float32, are added in float32, and C and what it
// starts from are not rounded.
//
// On a processor with AVX512_BF16, two terms are added at once, in what order is the
// processor's matter, and subnormal numbers count as zero, in operands and sums. On
// others the sum is Float32's. So the last bits may differ between these two kinds of
// processors, but not with the number of workers or the place in the matrix.
func BFloat16(ws *Workspace, c, a, b Matrix, from Start) {
	if check(c, a, b, from) {
		k := ws.kernels.bfloat16
		ws.multiply(k, k.pair == 1, c, a, b, from)
	}
}

// check panics unless the matrices fit each other and their data. It reports whether
// there are terms to be added: if not, C already is what it starts from.
func check(c, a, b Matrix, from Start) bool {
	c.check("C")
	a.check("A")
	b.check("B")
	from.check(c)
	if a.Rows != c.Rows || b.Cols != c.Cols || a.Cols != b.Rows {
		panic(fmt.Sprintf("gemm: %dx%d = %dx%d times %dx%d", c.Rows, c.Cols, a.Rows, a.Cols, b.Rows, b.Cols))
	}
	if c.Cols > 1 && c.ColStride != 1 || c.Rows > 1 && c.RowStride < c.Cols {
		panic(fmt.Sprintf("gemm: C has strides %d and %d, want contiguous rows of %d", c.RowStride, c.ColStride, c.Cols))
	}
	if c.Rows == 0 || c.Cols == 0 {
		return false
	}
	if a.Cols == 0 {
		from.fill(c)
		return false
	}
	return true
}
