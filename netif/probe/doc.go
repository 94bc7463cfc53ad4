// Package probe checks the connectivity of a job's network before training depends on it, and
// explains why a check fails.
//
// Each host listens on its chosen address ([Listen]), sends its endpoint to the other hosts
// ([Listener.Endpoint]), and probes its neighbors in a ring ([Neighbors], [Listener.Probe]).
// A probe sends small and large messages over TCP in both directions. It also sends datagrams
// of exactly the MTU, without fragmentation, in both directions. The pure function [Diagnose]
// derives named causes from the reports of all hosts ([Report]), such as an MTU mismatch on
// the path, an asymmetric route, a firewall, no common network, a duplicate address, or an
// interface that went down. The caller exchanges endpoints and reports, for example in two
// rounds of a rendezvous. It must keep a listener open until all hosts have reported.
//
// The sockets of the check are bound to the chosen address but not to a device, like the sockets
// of the ranks. Sockets that are bound to the device could succeed where the sockets of the ranks
// fail. Each probe opens two more connections, which distinguish a wrong route from a broken
// network. The first is not bound, like the sockets of NCCL. The second is bound to the device with
// SO_BINDTODEVICE, which requires CAP_NET_RAW before Linux 5.7; the probe skips it without
// permission. Listeners are not bound to a device, so that they see packets that arrive on a wrong one.
//
// Any user of a node can connect to its listener. Silent connections do not lock out the job's
// connections. A connection that ends without an answer is not evidence of another machine;
// only a wrong answer is.
//
// Guarantees:
//
//   - A probe takes at most 2 s with [DefaultTimeout].
//   - Only holders of the secret can answer a probe, and an answer is valid for one probe
//     only. All messages carry an HMAC over random values that both sides generate for the
//     probe.
//   - A listener answers only holders of the secret. Its answer is at most one datagram, or
//     the payload that it received.
//
// The package does not measure speed, does not encrypt, does not repair anything, and does not
// detect problems that affect only RDMA. Datagrams and the kernel's routes and neighbor table
// require Linux; on other systems, only the TCP check is available.
package probe
