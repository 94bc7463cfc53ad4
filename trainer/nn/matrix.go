// Package nn holds the models that the trainer trains: a linear map and the
// multilayer perceptron, their losses and their gradients, in float32.
//
// Memory is planned. [Model.Plan] allocates everything for the largest batch, and
// after that a step allocates nothing. Parameters and gradients live where their
// owner puts them (see [Param]), and a gradient is written straight there: into
// a buffer that is being reduced over all ranks, if that is where it lies.
//
// Names, shapes, initial weights and arithmetic are those of PyTorch's
// nn.Linear, nn.Sequential, F.cross_entropy and F.mse_loss. Initial weights are
// equal bit for bit. Outputs and gradients are equal up to the order and the
// rounding of additions, which here do not depend on the processor or on the size
// of the batch: sums run from first to last, those of matrix products with one
// rounding per term (package gemm, which may use several threads and gives the same
// bits however many). Losses are summed in float64.
//
// It does not differentiate programs, or know anything of ranks and files. Misuse, such as a batch that is larger than
// planned, panics: it is an error in the program, not in its input.
package nn

import "fmt"

// Matrix is a row-major view: element (i, j) is Data[i*Cols+j].
type Matrix struct {
	Rows, Cols int
	Data       []float32 // Rows*Cols elements
}

// check panics unless m has a number of columns and all its elements.
func (m Matrix) check(what string, cols int) {
	if m.Cols != cols || m.Rows < 1 || len(m.Data) != m.Rows*m.Cols {
		panic(fmt.Sprintf("nn: %s is %dx%d with %d elements, want %d columns", what, m.Rows, m.Cols, len(m.Data), cols))
	}
}

// view returns the first rows of a planned buffer as a matrix.
func view(buffer []float32, rows, cols int) Matrix {
	if rows*cols > len(buffer) {
		panic(fmt.Sprintf("nn: batch of %d samples, planned for %d", rows, len(buffer)/cols))
	}
	return Matrix{rows, cols, buffer[:rows*cols]}
}
