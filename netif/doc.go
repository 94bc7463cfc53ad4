// Package netif finds the network that the hosts of a job talk over.
//
// An [Inventory] is what one host has: its links, their addresses, its main
// routing table. [Collect] reads it from the kernel; [ReadInventory] reads one
// that was written down. [Choose] picks one host's interface to given peers,
// and [Agree] picks one network for a set of hosts and says which interface and
// address that is on each of them. Both are pure functions of the inventories:
// same input, same answer, on every host.
//
// The choice follows from what the kernel says, never from how an interface is
// called. An interface is usable if it is up, has a carrier and an address that
// other hosts can reach; it is right if the route to the peers leaves by it. An
// address that several hosts have, such as that of a container bridge, leads
// nowhere and rules its interface out. Of several networks that work, hardware
// goes before virtual links, RDMA before plain Ethernet, then the higher speed,
// the larger MTU, the default route, and last the lower interface index. Every
// interface that was not chosen is reported with the reason.
//
// The package does not probe: it sends no packet to a peer, and so cannot see a
// firewall or a broken switch. It reads the main routing table only, not policy
// rules or VRFs. It knows nothing of jobs, of Slurm, or of the environment
// variables that communication libraries read.
package netif
