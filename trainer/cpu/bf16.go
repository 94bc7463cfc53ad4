package cpu

import "github.com/ddpbatch/ddpbatch/trainer/gemm"

// HasBF16 reports whether this CPU has instructions that multiply bfloat16 (AVX512_BF16), and the
// name of the fastest kernels that it supports, such as "avx2". Without these instructions, matrix
// multiplications in bf16 round their operands and then run the float32 kernels, so they take
// longer than in float32.
func HasBF16() (has bool, kernels string) {
	kernels = gemm.Kernels()[0]
	return kernels == "avx512_bf16", kernels
}
