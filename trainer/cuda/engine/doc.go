// Package engine is the [device.Device] of an NVIDIA GPU, through the CUDA driver
// (package driver), cuBLASLt (package blaslt) and our own kernels (package kernels). It
// needs the build tag cuda.
//
// Operations are launched in one stream and return before they are done. Read, ReadInts
// and the operations that return a number wait. Float32 products have float32 operands
// (no TF32); bfloat16 ones round their operands, unless these are stored so, and sum in float32 on
// tensor cores.
// The same program gives the same bits each time on one kind of GPU with one cuBLASLt,
// unless Options.Tune lets measurements choose algorithms.
//
// Between Begin and End operations are held back, and what resembles what came before is
// done as a CUDA graph, with the same bits.
//
// A device serves one operation at a time, of any goroutine. A goroutine that binds the
// GPU first (driver.GPU.Bind) saves a call of the driver in each.
//
// What fails panics with a [device.Failure] that names CUDA's error, the operation and
// its shapes. A kernel that fails while it runs may be noticed in a later operation: the
// failure names that and the one before it, and with CUDA_LAUNCH_BLOCKING=1, which makes
// every launch wait, it is noticed in the one that failed.
//
// It does not choose a GPU, plan how much memory there is, or read the environment.
package engine
