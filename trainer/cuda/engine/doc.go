// Package engine implements [device.Device] on an NVIDIA GPU with the CUDA driver (package driver),
// cuBLASLt (package blaslt), and ddpbatch's kernels (package kernels). It requires the build tag
// cuda.
//
// Operations are launched in one stream and return before they are done. Read, ReadInts, and
// operations that return a value synchronize. FP32 matrix multiplications use float32 operands (no
// TF32). BF16 matrix multiplications round their operands, unless these are stored as bfloat16, and
// accumulate in float32 on tensor cores. The same program gives the same bits each time on one type
// of GPU with one version of cuBLASLt.
//
// Between Begin and End, operations are held back. A sequence that was recorded before is replayed
// as a CUDA graph, with the same bits.
//
// Any goroutine may call a device, but only one at a time. If the goroutine has bound the GPU
// (driver.GPU.Bind), each operation needs one fewer driver call.
//
// An error causes a panic with a [device.Failure] that contains CUDA's error, the operation, and
// its shapes. An error of a kernel during execution may be detected in a later operation: the
// failure then names that operation and the one before it. With CUDA_LAUNCH_BLOCKING=1, every
// launch synchronizes, and the failure names the operation that failed.
//
// The package does not select a GPU, does not plan memory, and does not read environment variables.
package engine
