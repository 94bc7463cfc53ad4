// Package nccl converts a network choice to the environment variables of NCCL and related
// libraries: PyTorch's Gloo and TensorPipe, UCX, and Open MPI.
//
// [Plan] writes each variable in the syntax of its reader: NCCL's lists with "=" for exact
// names and adapter ports, Gloo's plain names, UCX's devices, and Open MPI's networks. It
// separates ports for training from ports for storage and management. For libraries that use a
// single port, it selects the port closest to the rank's GPU.
//
// [Agree] compares the hosts of a job in advance, because NCCL hangs if one host lacks the
// InfiniBand that the others use. [DefaultInterface] returns the interface that NCCL selects
// without configuration, for comparison.
//
// Plan is in environment.go. It sets the variables of one library after the other: sockets.go for
// the interfaces of NCCL, Gloo, and TensorPipe, verbs.go and gid.go for NCCL's RDMA ports, plugin.go
// for its network plugin, and mpi.go for UCX and Open MPI. recent.go only checks variables that the
// user may have set. rails.go, survey.go, and affinity.go find the RDMA ports of a host and their
// distances to the GPUs.
//
// [Plan] never overrides a variable that the user, the site profile, or one of NCCL's own
// files has set. It reports who set the variable, and whether the value contradicts the
// choice. It also reports what it cannot express.
//
// Limits:
//
//   - The package does not choose an interface (package netif does) and does not set any
//     variable itself.
//   - It does not tune. Algorithms, buffers, UCX's transports, and the path from GPU to
//     adapter are left to the libraries.
//   - It does not search for network plugins or determine the version of NCCL. The caller provides
//     both.
package nccl
