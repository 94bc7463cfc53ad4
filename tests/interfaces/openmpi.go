package interfaces

import (
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// OpenMPI is the tcp transport of Open MPI 4 and 5 (opal/mca/btl/tcp,
// opal/mca/if/posix_ipv4 at 090ce41, and opal/mca/reachable/weighted, which is used where libnl is missing) with the
// default btl_tcp_if_exclude=127.0.0.1/8,sppp and without IPv6, as it is built by
// default. Every interface that is switched on and has an IPv4 address is used,
// a carrier or not, paired with the other host's by weight: public or private
// addresses, same subnet or not, lower speed of the two. Large messages are cut
// up over all pairs. Ranks of one host use shared memory.
//
// Left out: InfiniBand, which turns tcp off where it is there; the solver of the
// pairing, which is taken to find same subnets, and which is a guess where none
// match; reachable/netlink, which asks the kernel for routes.
func OpenMPI(p Pair) Pick {
	if p.alone() {
		return Pick{Warnings: []string{"shared memory"}}
	}
	pick := Pick{Spread: All}
	here, there := ompiInterfaces(p.Here), ompiInterfaces(p.There)
	for _, u := range here {
		sameNet := slices.ContainsFunc(there, func(r Use) bool { return u.Addr.Contains(r.Addr.Addr()) })
		rivals := 0 // that weigh the same
		for _, r := range there {
			if ompiPublic(u.Addr.Addr()) == ompiPublic(r.Addr.Addr()) && linkNamed(p.There, r.Link).Speed == linkNamed(p.Here, u.Link).Speed {
				rivals++
			}
		}
		switch {
		case sameNet:
			pick.Uses = append(pick.Uses, u)
		case len(here) <= len(there): // one for each, whatever it is
			pick.Uses = append(pick.Uses, u)
			if rivals > 1 && pick.Guess == "" {
				pick.Guess = u.Link
			}
		}
	}
	if len(pick.Uses) == 0 {
		pick.Failed = "no interface has an IPv4 address outside 127.0.0.1/8"
	}
	return pick
}

func ompiInterfaces(inv netif.Inventory) []Use {
	excluded := func(l netif.Link) bool {
		return l.Name == "sppp" || slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() && a.Addr().IsLoopback() })
	}
	var found []Use
	for _, u := range addresses(inv) {
		if l := linkNamed(inv, u.Link); u.Addr.Addr().Is4() && l.Flags&netif.Up != 0 && !excluded(l) {
			found = append(found, u)
		}
	}
	return found
}

func ompiPublic(a netip.Addr) bool { return !a.IsPrivate() && !a.IsLinkLocalUnicast() }
