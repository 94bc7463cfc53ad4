package interfaces

import (
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Use is one address on one interface that a system would use.
type Use struct {
	Link string
	Addr netip.Prefix
}

// Spread says what a system does with the interfaces after the first.
type Spread int

// The ways to use several interfaces.
const (
	Meet    Spread = iota // only the first is used
	Devices               // ranks meet on the first; any of them may carry data
	All                   // every one carries data, or any may be the first
)

// Pick is what a system would use on the first host of a pair.
type Pick struct {
	Uses     []Use
	Spread   Spread
	Guess    string   // the first interface whose counterpart on the other host is a guess; may be empty
	Failed   string   // why nothing can be used, in the system's own words where it has some
	Warnings []string // what the system says about its pick
}

// addresses lists a host's addresses as getifaddrs(3) does on Linux: IPv4 by
// interface index, then IPv6.
func addresses(inv netif.Inventory) []Use {
	links := slices.Clone(inv.Links)
	slices.SortStableFunc(links, func(a, b netif.Link) int { return a.Index - b.Index })
	var v4, v6 []Use
	for _, l := range links {
		for _, a := range l.Addrs {
			if a.Addr().Is4() {
				v4 = append(v4, Use{l.Name, a})
			} else {
				v6 = append(v6, Use{l.Name, a})
			}
		}
	}
	return append(v4, v6...)
}

// owner finds the interface that has an address; any of 127.0.0.0/8 is on the loopback.
func owner(inv netif.Inventory, a netip.Addr) (Use, bool) {
	for _, u := range addresses(inv) {
		if u.Addr.Addr() == a || a.Is4() && a.IsLoopback() && u.Addr.Addr().IsLoopback() {
			return Use{u.Link, netip.PrefixFrom(a, u.Addr.Bits())}, true
		}
	}
	return Use{}, false
}

func linkNamed(inv netif.Inventory, name string) netif.Link {
	for _, l := range inv.Links {
		if l.Name == name {
			return l
		}
	}
	return netif.Link{}
}

// carries says whether a link is up and has a carrier.
func carries(l netif.Link) bool {
	return l.Flags&netif.Up != 0 && l.Flags&netif.Running != 0 && l.Oper != "down"
}
