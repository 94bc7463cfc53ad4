// Package communicator performs the trainer's operations with NCCL: all-reduce, reduce-scatter, and
// all-gather of GPU memory, on a separate stream that overlaps with the computation.
//
// [Connect] creates a communicator for ranks that are already connected by a communicator of
// their hosts. The host communicator carries NCCL's unique ID. The ranks also use it to
// compare their NCCL versions and GPUs in advance, and to find the cause of a failure:
//
//	c, err := communicator.Connect(ctx, communicator.Options{Library: l, GPU: gpu, Control: host, ...})
//	work, err := c.AllReduce(ctx, gradients) // returns when the operation is on the stream
//	...
//	err = work.Wait(ctx)
//
// Buffers are tensors in GPU memory, which the host may be unable to access. An operation can wait
// for an event of another stream ([Comm.After]), and another stream can wait for its end
// ([Work.End]), so that the host does not wait in between.
//
// NCCL itself does not compare the ranks' calls, does not name a missing rank, and waits
// indefinitely. Therefore each operation has a deadline that starts when the GPU reaches it. If it
// is missed, the ranks gather their positions and name the rank that prevents the end (alarm.go).
// The ranks detect the loss of a rank immediately. With Options.Check, for debugging, they also
// compare the arguments of each operation over the host communicator while the GPU works.
// After the first failure, the package aborts NCCL's communicators and never waits for them.
// All operations then return that failure.
//
// Limits:
//
//   - NCCL determines the order of a sum. It is fixed for given ranks on given machines.
//   - Without Options.Check, ranks that run different operations may mix their data until the
//     deadline, or without an error if the operations fit together. Callers compare what they run.
//
// The package does not find the library (packages libnccl and trainer/cuda/library do), does
// not read or set NCCL's environment (package nccl does), does not choose the GPU, and cannot
// continue after a failure.
package communicator
