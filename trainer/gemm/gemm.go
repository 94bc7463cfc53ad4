// Package gemm multiplies single-precision matrices at the speed of the core:
// C = A·B and C += A·B, each of A and B possibly transposed or a part of a larger
// matrix.
//
// The arithmetic is fixed. Every element of C is the sum over k in rising order,
// one fused multiply-add (a product and a sum with a single rounding) per term,
// starting from zero or from what C held. AVX-512, AVX2 and portable code compute
// this same sum, and threads divide nothing but the rows of C: so a result is the
// same bits whatever the processor, the number of workers, and the place of the
// element in its matrix. Which NaN stands in a result that is not a number is not
// part of this promise.
//
// The fastest kernels that the processor has are chosen by [NewWorkspace]. They
// are assembly that internal/asmgen writes. A [Workspace] holds all memory that
// is needed, and a multiplication allocates nothing.
//
// It does not know layers, biases or activations (a bias is what C holds before
// C += A·B), does not multiply other types, scales nothing, and has no vector
// kernels for anything but amd64: elsewhere the portable code keeps the promise
// above, but not the speed.
package gemm

import "fmt"

//go:generate go run ./internal/asmgen

// minTermsPerWorker is the number of multiply-adds for which another worker is
// used: 0.1 ms of an AVX-512 core. On a virtual machine of two cores, where to wake
// a sleeping thread takes long, two workers were slower than one below this, and
// a seventh faster at it.
const minTermsPerWorker = 3 << 22

// Float32 computes C = A·B, or C += A·B if accumulate is set, where A is m x k, B
// is k x n and C is m x n. Rows of C must be contiguous (ColStride 1), and C must
// not share elements with A or B. If k is zero, A·B is zero.
//
// Only elements of C are written, nothing between its rows, and only elements of
// A and B are read. Matrices that do not fit each other or their data panic.
func Float32(ws *Workspace, c, a, b Matrix, accumulate bool) {
	c.check("C")
	a.check("A")
	b.check("B")
	if a.Rows != c.Rows || b.Cols != c.Cols || a.Cols != b.Rows {
		panic(fmt.Sprintf("gemm: %dx%d = %dx%d times %dx%d", c.Rows, c.Cols, a.Rows, a.Cols, b.Rows, b.Cols))
	}
	if c.Cols > 1 && c.ColStride != 1 || c.Rows > 1 && c.RowStride < c.Cols {
		panic(fmt.Sprintf("gemm: C has strides %d and %d, want contiguous rows of %d", c.RowStride, c.ColStride, c.Cols))
	}
	if c.Rows == 0 || c.Cols == 0 {
		return
	}
	if a.Cols == 0 {
		if !accumulate {
			for i := range c.Rows {
				clear(c.Data[i*c.RowStride:][:c.Cols])
			}
		}
		return
	}
	ws.multiply(c, a, b, accumulate)
}
