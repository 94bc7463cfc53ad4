package interfaces

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// A Pair is two hosts of one job, seen from the first. There has no links if the job runs on one
// host.
type Pair struct {
	Here, There netif.Inventory
	Peer        netip.Addr // address of the other host, as a user would give it
}

// isSingleHost reports whether all ranks are on one host.
func (p Pair) isSingleHost() bool { return len(p.There.Links) == 0 }

// NewPair combines a host, "here", with an equal host, "there". The other host has the same
// interfaces and the next address in each subnet. Its counterpart of right, the host's right
// address, is peer. Addresses that every host assigns to itself are equal on both: the loopback
// address, addresses in 169.254.0.0/16, and the address of a bridge without a device as a port. If
// peer is a loopback address, there is no other host.
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
				if !isOnEveryHost(here, *l, a.Addr()) {
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

// isOnEveryHost reports whether a link has the same address on every host.
func isOnEveryHost(inv netif.Inventory, l netif.Link, a netip.Addr) bool {
	if a.IsLoopback() || a.Is4() && a.IsLinkLocalUnicast() {
		return true
	}
	return l.Kind == "bridge" && a.Is4() && !slices.ContainsFunc(inv.Links, func(port netif.Link) bool {
		return port.Master == l.Name && port.PCI != ""
	})
}

// next returns the address of another host: the following address in the subnet, or the previous
// one at the end of the subnet. A subnet of one host, or of a host and its switch, has no free
// address, so the other host has an address in the next such subnet.
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
	if own.IsSingleIP() || own.Contains(a.Next().Next()) { // the last address is the broadcast address
		return a.Next()
	}
	return a.Prev()
}

// counterpart returns the other host's address for u: the address with the same index on the
// interface with the same name, otherwise an address in the same subnet. It returns false if the
// other host has neither.
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
