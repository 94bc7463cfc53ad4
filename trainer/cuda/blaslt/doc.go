// Package blaslt calls cuBLASLt, NVIDIA's library for matrix multiplications, of CUDA 11 to 13.
// Package library finds and loads it.
//
// Matrix multiplications accumulate in float32, and the order of their sums is fixed for each
// [Plan]: split-K algorithms that accumulate in the output are excluded. A Plan is created once and
// allocates nothing when it runs. The package requires the build tag cuda, does not time
// algorithms, and does not read environment variables.
package blaslt
