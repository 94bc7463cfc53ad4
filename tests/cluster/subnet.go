//go:build linux

package cluster

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// A subnet is a cluster's pair of networks, 10.10.ID.0/24 (management) and 10.20.ID.0/24 (fast).
type subnet struct{ id int }

const (
	loginHost   = 254
	controlHost = 253
	prefixBits  = 24
)

func (s subnet) host(second, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(second), byte(s.id), byte(i)})
}

func (s subnet) management(i int) netip.Addr { return s.host(10, i) }
func (s subnet) fast(i int) netip.Addr       { return s.host(20, i) }
func (s subnet) login() netip.Addr           { return s.management(loginHost) }
func (s subnet) control() netip.Addr         { return s.management(controlHost) }

// hardware returns the hardware address of the interface with address a. It is constant, so that
// the neighbors of a restarted node need not resolve it again.
func hardware(a netip.Addr) net.HardwareAddr {
	b := a.As4()
	return net.HardwareAddr{0x02, 0xdd, b[0], b[1], b[2], b[3]}
}

// freeSubnets returns, in order, the subnets in which the machine of h has neither an address nor a
// route.
func freeSubnets(h *netlink.Handle) ([]subnet, error) {
	addrs, err := h.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	routes, err := h.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	var taken []netip.Addr
	take := func(ip net.IP) {
		if a, ok := netip.AddrFromSlice(ip); ok {
			taken = append(taken, a.Unmap())
		}
	}
	for _, a := range addrs {
		take(a.IP)
	}
	for _, r := range routes {
		take(r.Gw)
		if r.Dst != nil {
			take(r.Dst.IP)
		}
	}
	var free []subnet
next:
	for id := range 256 {
		s := subnet{id}
		management := netip.PrefixFrom(s.management(0), prefixBits)
		fast := netip.PrefixFrom(s.fast(0), prefixBits)
		for _, a := range taken {
			if management.Contains(a) || fast.Contains(a) {
				continue next
			}
		}
		free = append(free, s)
	}
	return free, nil
}
