// Package interfaces models which network interface NCCL, Gloo, UCX, Open MPI, Horovod, and Ray
// select without configuration. The models are pure functions of the inventories of package netif.
// A test runs them and netif on the collected hosts, and writes the comparison in docs/network.md.
//
// Each model follows the named source of its system, as far as the choice of an interface is
// concerned. Its comment lists what it omits. A [Pair] combines each collected host with a second
// host. [Pair.Evaluate] uses the routes of both hosts to decide whether a selection would have worked.
//
// The package opens no sockets and runs none of these systems. It shows the results of their
// documented rules, not of measurements.
package interfaces
