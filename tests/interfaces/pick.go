package interfaces

import (
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// A Use is an address of an interface that a system would use.
type Use struct {
	Link string
	Addr netip.Prefix
}

// Spread describes how a system uses the interfaces after the first.
type Spread int

// The ways to use several interfaces.
const (
	Meet    Spread = iota // only the first is used
	Devices               // ranks bootstrap over the first; any of them may carry data
	All                   // all carry data, or any may be the first
)

// A Pick is the selection of a system on the first host of a pair.
type Pick struct {
	Uses     []Use
	Spread   Spread
	Guess    string   // the first interface whose counterpart on the other host is a guess; may be empty
	Failed   string   // why the system cannot use any interface, with the system's own message if it has one
	Warnings []string // messages of the system about its selection
}

// addresses lists a host's addresses in the order of getifaddrs(3) on Linux: IPv4 by interface
// index, then IPv6.
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

// owner returns the interface with an address. All addresses in 127.0.0.0/8 belong to the loopback
// interface.
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

// canCarryTraffic reports whether a link is up and has a carrier.
func canCarryTraffic(l netif.Link) bool {
	return l.Flags&netif.Up != 0 && l.Flags&netif.Running != 0 && l.Oper != "down"
}
