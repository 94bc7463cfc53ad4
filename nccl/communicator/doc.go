// Package communicator is NCCL as a [collective.Communicator]: its operations on the
// memory of GPUs, on a stream of their own beside the computation.
//
// [Connect] makes one of the ranks that are connected already, by the host's own
// communicator, which carries NCCL's unique id, has the ranks compare their versions
// and GPUs beforehand, and goes with every operation:
//
//	c, err := communicator.Connect(ctx, communicator.Options{Library: l, GPU: gpu, Control: host, ...})
//	request := c.Start(ctx, collective.AllReduce(gradients, collective.Sum)) // device memory
//	...
//	err = request.Wait()
//
// Buffers are memory of the GPU, which the host need not be able to address: a slice is
// only its address and length here. [Comm.Staged] is the same for memory of the host.
// An operation can wait for an event of another stream ([Comm.After]), and leave one
// for others to wait for ([Comm.Before]), so that no host waits in between.
//
// It promises what package collective does. NCCL itself does not compare what ranks
// ask for, does not say who is missing, and waits for ever; so each operation has a
// deadline that begins when the GPU comes to it, and with Options.Check the ranks
// compare its arguments over the host's communicator while the GPU works, and learn
// there that one has failed. After the first failure NCCL's communicators are aborted,
// never waited for, and everything ends with that failure.
//
// What differs from other members: the order of a sum is NCCL's, the same for the same
// ranks on the same machines; a mean of floating-point numbers is the sum of elements
// that were scaled before; and without Options.Check ranks that are in different
// operations may mix their data until the deadline.
//
// It does not find the library (packages libnccl and trainer/cuda/library), does not read or set NCCL's
// environment (package nccl), does not choose the GPU, and does not survive a failure.
package communicator
