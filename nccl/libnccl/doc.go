// Package libnccl loads NVIDIA's libnccl at run time and wraps its functions with Go types and
// errors. It supports versions 2.14 to 2.30 and needs no C compiler, headers, or CUDA toolkit
// at build time.
//
// [Open] loads the first usable library and returns its version and file, or the error of
// every location. Which functions are available depends on the symbols that the library
// exports, not on its version number only.
//
// A call guarantees only what NCCL guarantees: it returns when NCCL has accepted it, and
// [InProgress] is not an error. All calls for one communicator or one group must come from one
// locked thread whose current CUDA context belongs to its GPU, because NCCL tracks groups per
// thread. Buffers are device memory and must stay allocated until the stream has completed the
// operation.
//
// The package does not search for libraries (package trainer/cuda/library does). It does not
// wait, time out, or retry (package communicator does). It does not read the environment; NCCL
// does when it is loaded. It never unloads a library, because NCCL's threads may still run.
//
// Sources: NCCL's user guide, and nccl.h from 2.14.3 to 2.30.7.
package libnccl
