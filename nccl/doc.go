// Package nccl turns a network choice into the environment that NCCL and the
// libraries beside it read.
//
// It writes each variable in its reader's own grammar: NCCL's list of prefixes
// with "=" for exact names, the plain names of Gloo and TensorPipe. It never
// overrides a variable that a user or site has already set, in the environment
// or in a file that NCCL reads, but says where the value comes from and whether
// it contradicts the choice. What cannot be expressed is left out and said.
//
// The package does not choose (that is package netif), does not set any
// variable itself, and does not tune: algorithms, buffers and RDMA devices are
// left to NCCL.
package nccl
