package interfaces

import "net/netip"

// Ray models the address of a node in Ray (node_ip_address_from_perspective in
// python/ray/_private/services.py) without --node-ip-address. Ray connects a UDP socket to 8.8.8.8,
// which sends nothing, and reads the socket's own address. This is the address of the default
// route. Without a route it is the address of the host name, which the model assumes to be
// 127.0.0.1.
//
// The model omits IPv6, and NCCL_SOCKET_IFNAME as Ray Train sets it for its workers.
func Ray(p Pair) Pick {
	a := InDNS(p.Here)
	if !a.IsValid() {
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	u, own := owner(p.Here, a)
	if !own {
		return Pick{Failed: "no address of its own"}
	}
	return Pick{Uses: []Use{u}}
}
