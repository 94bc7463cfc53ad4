// Package libnccl is NVIDIA's libnccl, loaded while the program runs: its functions with
// Go's types and errors, from version 2.14 to 2.30, without C, headers or a CUDA toolkit
// at build time.
//
// [Open] loads the first library that will do and says its version and file, or of every
// place why not. What a version lacks is known by its symbols, never by its number alone.
//
// It promises what NCCL does and no more: a call returns when NCCL has taken it, and
// [InProgress] is no error. Calls that belong to one communicator or one group must
// come from one locked thread whose current CUDA context is that of its GPU, because
// NCCL keeps groups by thread; buffers are memory of the device and must stay until
// the stream has passed the operation.
//
// It does not search (package trainer/cuda/library does), nor wait, watch, time out or
// retry (package communicator does). It does not read the environment (NCCL itself does,
// when it is loaded), and never unloads what it has loaded: NCCL's threads may still run.
//
// Sources: NCCL's user guide and its nccl.h of 2.14.3 to 2.30.7.
package libnccl
