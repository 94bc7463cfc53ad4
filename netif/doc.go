// Package netif selects the network interface and address that each host of a job uses to
// communicate with the other hosts.
//
// An [Inventory] describes one host: its links, their addresses, its policy rules and routing
// tables, its RDMA adapters, and its GPUs. [Collect] reads it from the kernel, and [ReadCases]
// from JSON. [Choose] picks one host's interface to given peers. [Agree] picks one network for a
// set of hosts, and the interface and address of each host on it. Both are pure functions of
// the inventories: the same input gives the same result on every host.
//
// The choice depends on the kernel's configuration. It depends on interface names only if the
// [Request] lists some. An interface is usable if it is up, has a carrier, and has an address
// that other hosts can reach. Packets from that address to the peers must also leave by that
// interface, according to policy rules and routes, in both directions. An address that several
// hosts have, such as the address of a container bridge, does not lead to another host and
// excludes its interface.
//
// If several networks work, these criteria decide, in this order:
//
//   - the preference of the [Request]
//   - hardware before virtual links, and virtual links by how close they are to hardware
//   - a fabric (RDMA or Slingshot) before plain Ethernet
//   - the higher device speed
//   - the larger MTU
//   - the default route
//   - the lower interface index
//
// Every interface that was not chosen is reported with the reason.
//
// Limits:
//
//   - The package does not probe. It sends no packet to a peer, so it cannot detect a firewall
//     or a broken switch.
//   - It does not use links in a VRF, and it ignores rules that match on ports. It assumes
//     that sockets carry no mark.
//   - It does not know about jobs, Slurm, or the environment variables of communication
//     libraries.
package netif
