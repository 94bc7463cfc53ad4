package interfaces

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Pair is two hosts of one job, seen from the first. There has no links if the
// job is on one host.
type Pair struct {
	Here, There netif.Inventory
	Peer        netip.Addr // where the other host is met, as a person would say it
}

// alone says whether every rank is on one host.
func (p Pair) alone() bool { return len(p.There.Links) == 0 }

// NewPair puts beside a host, "here", another, "there", that is built alike: same
// interfaces, next address in each subnet, and peer where the host's right
// address is. Addresses that every host makes for itself are the same on both:
// the loopback's, those of 169.254.0.0/16, and that of a bridge that no device is
// a port of. A peer on the loopback means that there is no other host.
func NewPair(here netif.Inventory, right, peer netip.Addr) Pair {
	here.Host = "here"
	if peer.IsLoopback() {
		return Pair{Here: here, Peer: peer}
	}
	there := here
	there.Host = "there"
	there.Links = slices.Clone(here.Links)
	moved := map[netip.Addr]netip.Addr{right: peer}
	for i := range there.Links {
		l := &there.Links[i]
		l.Addrs = slices.Clone(l.Addrs)
		for n, a := range l.Addrs {
			to, known := moved[a.Addr()]
			if !known {
				to = a.Addr()
				if !everywhere(here, *l, a.Addr()) {
					to = next(a)
				}
				moved[a.Addr()] = to
			}
			l.Addrs[n] = netip.PrefixFrom(to, a.Bits())
		}
	}
	there.Routes = slices.Clone(here.Routes)
	for i := range there.Routes {
		if to, known := moved[there.Routes[i].Src]; known {
			there.Routes[i].Src = to
		}
	}
	return Pair{Here: here, There: there, Peer: peer}
}

// everywhere says whether a link has the same address on every host.
func everywhere(inv netif.Inventory, l netif.Link, a netip.Addr) bool {
	if a.IsLoopback() || a.Is4() && a.IsLinkLocalUnicast() {
		return true
	}
	return l.Kind == "bridge" && a.Is4() && !slices.ContainsFunc(inv.Links, func(port netif.Link) bool {
		return port.Master == l.Name && port.PCI != ""
	})
}

// next is another host's address: the following one in the subnet, or the one
// before if there is none. Subnets of one host, or of a host and its switch,
// leave no room; the other host then has the next such subnet.
func next(own netip.Prefix) netip.Addr {
	a := own.Addr()
	if a.Is6() {
		return a.Next()
	}
	if own.Bits() == 31 {
		raw := a.As4()
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])+2)
		return netip.AddrFrom4(raw)
	}
	if own.IsSingleIP() || own.Contains(a.Next().Next()) { // the last one is the broadcast address
		return a.Next()
	}
	return a.Prev()
}

// counterpart is what the other host has where this one has u: the address in
// the same place on the interface of the same name, else one of the same
// subnet. The second result is false if it has neither.
func (p Pair) counterpart(u Use) (netip.Addr, bool) {
	n := slices.Index(linkNamed(p.Here, u.Link).Addrs, u.Addr)
	if addrs := linkNamed(p.There, u.Link).Addrs; n >= 0 && n < len(addrs) {
		return addrs[n].Addr(), true
	}
	for _, other := range addresses(p.There) {
		if u.Addr.Contains(other.Addr.Addr()) {
			return other.Addr.Addr(), true
		}
	}
	return netip.Addr{}, false
}
