// Package probe proves that the network which the hosts of a job agreed on works
// before anything depends on it, and says why where it does not.
//
// Each host listens on its chosen address ([Listen]), tells the others where
// ([Listener.Endpoint]) and probes its neighbours in the ring ([Neighbours],
// [Listener.Probe]): small and large messages over TCP both ways, and datagrams
// of exactly the MTU that must not be fragmented, both ways. What all hosts saw
// ([Report]) is turned into named causes by a pure function, [Diagnose]: an MTU
// that differs on the way, an asymmetric route, a firewall, addresses that are on
// no common network, an address that two hosts have, an interface that went down
// meanwhile. How endpoints and reports travel is the caller's business, for
// instance two rounds of a rendezvous; a listener must stay open until all hosts
// have reported.
//
// The sockets that decide are bound to the chosen address and to no device, as
// those of the ranks are; a proof with better sockets than the job's would prove
// too much. Next to them goes a connection that is bound to nothing, as NCCL
// makes its own, and one that is bound to the device (SO_BINDTODEVICE, which
// needs CAP_NET_RAW before Linux 5.7 and is left out where it is refused). They
// tell a wrong route from a broken network. Listeners are bound to no device, so
// that a packet that comes in by a wrong one is seen and not dropped.
//
// Any user of a node can connect to its listener. Silent connections do not lock out those
// of the job, and no connection that ends without an answer counts as another machine: only
// an answer that is wrong does.
//
// It promises that a probe takes less than two seconds ([Options].Timeout), that
// only holders of the secret can answer one, and that no answer is taken for
// another: all messages carry an HMAC over the numbers that both sides drew for
// this probe. A listener answers whoever holds the secret, with no more bytes
// than one datagram or the payload that it was sent.
//
// The package does not measure speed, does not encrypt, repairs nothing, and does
// not see what only RDMA sees. Datagrams and the kernel's view of routes and
// neighbours need Linux; elsewhere there is only the proof over TCP.
package probe
