// Package netif finds the network that the hosts of a job talk over.
//
// An [Inventory] is what one host has: its links, their addresses, its policy
// rules and routing tables, its RDMA adapters and GPUs. [Collect] reads it from the
// kernel; [ReadInventory] and [ReadCases] read what was written down. [Choose] picks one host's interface to given peers,
// and [Agree] picks one network for a set of hosts and says which interface and
// address that is on each of them. Both are pure functions of the inventories:
// same input, same answer, on every host.
//
// The choice follows from what the kernel says, never from how an interface is
// called. An interface is usable if it is up, has a carrier and an address that
// other hosts can reach; it is right if packets from that address to the peers
// leave by it, in both directions, as policy rules and routes have it. An
// address that several hosts have, such as that of a container bridge, leads
// nowhere and rules its interface out. Of several networks that work, hardware
// goes before virtual links and these by how near they are to a wire, a fabric
// (RDMA or Slingshot) before plain Ethernet, then the higher speed of devices,
// the larger MTU, the default route, and last the lower interface index. Every
// interface that was not chosen is reported with the reason.
//
// The package does not probe: it sends no packet to a peer, and so cannot see a
// firewall or a broken switch. It leaves out what is in a VRF, and rules that ask
// for ports or marks. It knows nothing of jobs, of Slurm, or of the environment
// variables that communication libraries read.
package netif
