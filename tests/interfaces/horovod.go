package interfaces

import (
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Horovod is horovodrun 0.28 without --network-interfaces (42712c5:
// get_common_interfaces in runner/driver/driver_service.py; 1f5c367: _probe_one in
// runner/common/util/network.py).
// Each host connects to every IPv4 address of the next one and keeps those
// interfaces where a server of that host answered and saw an address of the
// interface with the same name. What all hosts keep goes into
// NCCL_SOCKET_IFNAME, and one of them into HOROVOD_GLOO_IFACE, from a set without
// order. On one host it is the interface that has 127.0.0.1.
//
// NCCL and Gloo are told a name, not an address: they take the interface's first.
//
// Left out: firewalls, LSF (where nothing is probed), and further hosts, whose
// names can only make the set smaller.
func Horovod(p Pair) Pick {
	if p.alone() {
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

// answers says whether the probe keeps an interface: an address of the other
// host's interface of that name, not one of this host's own, is reached from an
// address of this one's.
func (p Pair) answers(link string) bool {
	own := linkNamed(p.Here, link)
	for _, to := range linkNamed(p.There, link).Addrs {
		if _, self := owner(p.Here, to.Addr()); self || to.Addr().Is6() {
			continue
		}
		dev, src := route(p.Here, to.Addr())
		if !carries(linkNamed(p.Here, dev)) || !carries(linkNamed(p.There, link)) && !isLoopback(own) {
			continue
		}
		if slices.ContainsFunc(own.Addrs, func(a netip.Prefix) bool { return a.Addr() == src }) {
			return true
		}
	}
	return false
}

func isLoopback(l netif.Link) bool { return l.ARPHRD == "loopback" }
