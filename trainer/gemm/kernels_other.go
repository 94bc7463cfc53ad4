//go:build !amd64

package gemm

// available returns the kernels that the CPU supports.
func available() []kernels { return []kernels{{"portable", &portable, &portable}} }

var portable = kernel{pair: 1}
