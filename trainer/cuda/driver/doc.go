// Package driver calls the CUDA driver: an open GPU with its memory, streams,
// events, kernels and graphs. Most calls go through gorgonia.org/cu; what that
// package lacks (pinned memory, graphs captured from a stream, launches with
// attributes, host functions, stream-ordered memory, names of errors) stands beside it
// and uses the same handles. It all needs the build tag cuda, and no CUDA toolkit:
// trainer/cuda/cgo.sh runs a command with the flags that it takes.
//
// It promises: a program with this package starts on a machine without a driver, as
// libcuda.so.1 is looked for on first use, by [Load] or [Open], where the dynamic
// linker looks (LD_LIBRARY_PATH included); any driver of CUDA 11 to 13 will do, and a
// function that an old one lacks fails alone and by name; a launch allocates nothing;
// an [Error] has CUDA's name for what failed, the operation, and what it was about.
//
// Calls belong to the GPU that is bound to the calling goroutine, see [GPU.Bind]. It
// is the primary context of the GPU, the one that NCCL and cuBLASLt use too.
//
// It does not compute, choose a GPU or read the environment, and does not look at the
// memory that a kernel is given.
package driver

//go:generate go run ./internal/tablegen
