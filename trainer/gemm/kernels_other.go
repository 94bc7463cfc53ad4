//go:build !amd64

package gemm

// available returns the kernels that this processor can run.
func available() []*kernel { return []*kernel{&portable} }

var portable = kernel{name: "portable"}
