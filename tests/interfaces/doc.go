// Package interfaces models which network interface NCCL, Gloo, UCX, Open MPI,
// Horovod and Ray take when nobody tells them, as pure functions over the
// inventories of package netif, beside what netif itself takes. Its test runs
// them over the collected hosts and writes the comparison in docs/network.md.
//
// Each model follows the named source of the system it stands for, as far as
// the choice of an interface goes, and its comment says what it leaves out. A
// [Pair] puts a second host beside each collected one; [Pair.Judge] says by the
// routes of the two whether a pick would have worked.
//
// The package does not open sockets and runs none of these systems: it says what
// their documented rules give, not what was measured.
package interfaces
