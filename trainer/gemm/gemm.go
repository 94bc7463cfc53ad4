// Package gemm multiplies float32 matrices, optionally rounded to bfloat16, close to the peak rate
// of the core: C = A·B, C += A·B, and C = bias + A·B. A and B may be transposed or views of larger
// matrices.
//
// The arithmetic of [Float32] is fixed. Every element of C is the sum over k in ascending order,
// with one fused multiply-add per term (a product and a sum with a single rounding), starting from
// zero, C, or a bias. AVX-512, AVX2, and portable code compute the same sum, and threads divide
// only the rows or columns of C. So a result is bit-identical on every CPU, for any number of
// workers, and at any position in the matrix, except for the bits of a NaN. [BFloat16] guarantees
// the same, except across CPUs.
//
// [NewWorkspace] selects the fastest kernels that the CPU supports. They are written in assembly by
// internal/asmgen. A [Workspace] holds all required memory, and a multiplication allocates nothing.
//
// The package does not implement layers or activations, does not store bfloat16 or multiply other
// types, and does not scale. It has vector kernels only for amd64. On other architectures, the
// portable code has the same guarantees but is slow.
package gemm

import "fmt"

//go:generate go run ./internal/asmgen

// minTermsPerWorker is the number of multiply-adds that justifies another worker: 0.1 ms of an
// AVX-512 core. On a virtual machine with two cores, where waking a sleeping thread takes long, two
// workers were slower than one below this size, and a seventh faster at this size.
const minTermsPerWorker = 3 << 22

// Float32 computes C = A·B, where A is m x k, B is k x n, and C is m x n. The sums start from the
// value that from specifies. Rows of C must be contiguous (ColStride 1), and C must not overlap A
// or B. If k is zero, A·B is zero.
//
// Float32 writes only elements of C, nothing between its rows, and reads only elements of A and B.
// It panics if the matrices do not match each other or their data.
func Float32(ws *Workspace, c, a, b Matrix, from Start) {
	if check(c, a, b, from) {
		ws.multiply(ws.kernels.float32, false, c, a, b, from)
	}
}

// BFloat16 is like Float32, but rounds the elements of A and B to bfloat16, to nearest even. Values
// that are too large become infinite, and NaN remains NaN. The products, which are exact in
// float32, are accumulated in float32. C and its start value are not rounded.
//
// On a CPU with AVX512_BF16, two terms are added at a time, in an order that the CPU defines, and
// subnormal values in operands and sums are treated as zero. On other CPUs, the sum equals the sum
// of Float32. So the last bits may differ between these two kinds of CPUs, but not with the number
// of workers or the position in the matrix.
func BFloat16(ws *Workspace, c, a, b Matrix, from Start) {
	if check(c, a, b, from) {
		k := ws.kernels.bfloat16
		ws.multiply(k, k.pair == 1, c, a, b, from)
	}
}

// check panics unless the matrices match each other and their data. It reports whether there are
// terms to add. Otherwise it has set C to its start value.
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
