// Package blaslt calls cuBLASLt, NVIDIA's library for products of matrices, of CUDA 11
// to 13, which package library finds and loads.
//
// It promises products whose sums are of float32 and in one order for one [Plan]: the
// algorithms that add up parts in the result itself are left out. A Plan is found once
// and allocates nothing when it runs. It needs the build tag cuda, does not choose
// among plans, and does not read the environment.
package blaslt
