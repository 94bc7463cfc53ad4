package interfaces

import (
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Horovod models horovodrun 0.28 without --network-interfaces (42712c5: get_common_interfaces in
// runner/driver/driver_service.py; 1f5c367: _probe_one in runner/common/util/network.py). Each host
// connects to every IPv4 address of the next host. It keeps an interface if a server of that host
// responds and the connection comes from an address of the interface with the same name.
// NCCL_SOCKET_IFNAME contains the interfaces that all hosts keep. HOROVOD_GLOO_IFACE contains one
// of them, from an unordered set. On one host it is the interface with 127.0.0.1.
//
// NCCL and Gloo receive a name and not an address, and use the first address of the interface.
//
// The model omits firewalls, LSF (where Horovod probes nothing), and further hosts, whose names can
// only make the set smaller.
func Horovod(p Pair) Pick {
	if p.isSingleHost() {
		u, own := owner(p.Here, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		if !own {
			return Pick{Failed: "No interface is found for address 127.0.0.1."}
		}
		return Pick{Uses: []Use{u}}
	}
	pick := Pick{Spread: All}
	for _, u := range addresses(p.Here) {
		kept := func(have Use) bool { return have.Link == u.Link }
		if u.Addr.Addr().Is4() && p.answers(u.Link) && !slices.ContainsFunc(pick.Uses, kept) {
			pick.Uses = append(pick.Uses, u)
		}
	}
	if len(pick.Uses) == 0 {
		pick.Failed = "Unable to find a set of common task-to-task communication interfaces"
	}
	return pick
}

// answers reports whether the probe keeps an interface: an address of the other host's interface
// with that name, which is not an address of this host, is reachable from an address of this host's
// interface.
func (p Pair) answers(link string) bool {
	own := linkNamed(p.Here, link)
	for _, to := range linkNamed(p.There, link).Addrs {
		if _, self := owner(p.Here, to.Addr()); self || to.Addr().Is6() {
			continue
		}
		dev, src := route(p.Here, to.Addr())
		if !canCarryTraffic(linkNamed(p.Here, dev)) || !canCarryTraffic(linkNamed(p.There, link)) && !isLoopback(own) {
			continue
		}
		if slices.ContainsFunc(own.Addrs, func(a netip.Prefix) bool { return a.Addr() == src }) {
			return true
		}
	}
	return false
}

func isLoopback(l netif.Link) bool { return l.ARPHRD == "loopback" }
