// Package nccl turns a network choice into the environment that NCCL and the
// libraries beside it read: Gloo and TensorPipe of PyTorch, UCX and Open MPI.
//
// [Plan] writes each variable in its reader's own grammar: NCCL's lists with "="
// for exact names and ports of adapters, the plain names of Gloo, UCX's devices,
// Open MPI's networks. It tells ports for training from those for storage and
// management, and finds the one near a rank's GPU for libraries that use one.
// [Agree] compares the hosts of a job beforehand, because NCCL hangs where one
// of them lacks the InfiniBand that the others use. A variable that a user, the
// centre's profile or a file that NCCL reads has set already is never overridden;
// who set it, and whether it contradicts the choice, is said. So is what cannot
// be expressed.
//
// The package does not choose an interface (that is package netif), does not set
// any variable itself, and does not tune: algorithms, buffers, UCX's transports
// and the search for the way from GPU to adapter are left to the libraries. It
// does not look for network plugins or for the version of NCCL: both are told
// to it, or not known.
package nccl
