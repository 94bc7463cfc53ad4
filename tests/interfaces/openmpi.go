package interfaces

import (
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// OpenMPI models the tcp transport of Open MPI 4 and 5 (opal/mca/btl/tcp, opal/mca/if/posix_ipv4 at
// 090ce41, and opal/mca/reachable/weighted, which it uses without libnl) with the default
// btl_tcp_if_exclude=127.0.0.1/8,sppp and without IPv6, which is the default build. It uses every
// interface that is up and has an IPv4 address, with or without a carrier. It pairs them with the
// other host's interfaces by weight: public or private addresses, same subnet or not, and the lower
// speed of the two. It splits large messages over all pairs. Ranks on one host use shared memory.
//
// The model omits InfiniBand, which disables tcp if it is available, and reachable/netlink, which
// queries the kernel's routes. It simplifies the solver of the pairing: it assumes that the solver
// finds equal subnets, and it guesses if no subnets are equal.
func OpenMPI(p Pair) Pick {
	if p.isSingleHost() {
		return Pick{Warnings: []string{"shared memory"}}
	}
	pick := Pick{Spread: All}
	here, there := ompiInterfaces(p.Here), ompiInterfaces(p.There)
	for _, u := range here {
		sameNet := slices.ContainsFunc(there, func(r Use) bool { return u.Addr.Contains(r.Addr.Addr()) })
		rivals := 0 // number of interfaces with equal weight
		for _, r := range there {
			if ompiPublic(u.Addr.Addr()) == ompiPublic(r.Addr.Addr()) && linkNamed(p.There, r.Link).Speed == linkNamed(p.Here, u.Link).Speed {
				rivals++
			}
		}
		switch {
		case sameNet:
			pick.Uses = append(pick.Uses, u)
		case len(here) <= len(there): // one for each, any of them
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
