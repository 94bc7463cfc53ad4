// Package driver calls the CUDA driver API: GPUs, memory, streams, events, kernels, and graphs.
// Most calls use gorgonia.org/cu. The package adds calls that gorgonia.org/cu lacks, with the same
// handles: pinned memory, graphs captured from a stream, launches with attributes, host functions,
// and error names. It requires the build tag cuda, but no CUDA toolkit:
// trainer/cuda/cgo.sh runs a command with the required flags.
//
// Guarantees:
//   - A program with this package starts on a machine without a driver: [Load] or [Open] loads
//     libcuda.so.1 on first use. The dynamic linker finds it, so LD_LIBRARY_PATH applies.
//   - Every driver of CUDA 11 to 13 works. If an old driver lacks a function, only calls of that
//     function fail, and the error names it.
//   - A launch allocates nothing.
//   - An [Error] contains CUDA's error name, the operation, and its arguments.
//
// Calls use the GPU that is bound to the calling goroutine, see [GPU.Bind]. The context is the
// primary context of the GPU, which NCCL and cuBLASLt use also.
//
// The package does not compute, does not select a GPU, does not read environment variables, and
// does not access memory that is passed to kernels.
package driver
