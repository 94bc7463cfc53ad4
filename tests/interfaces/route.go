package interfaces

import (
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// route returns the interface and the source address of packets to a, for an unbound socket: the
// longest prefix, then the lowest metric, then the order of the table. A link that is up has a
// route to its own subnet even if the inventory does not list it. Without a route it returns "".
func route(inv netif.Inventory, a netip.Addr) (dev string, src netip.Addr) {
	var best netif.Route
	found := false
	consider := func(r netif.Route) {
		if !r.Dst.Contains(a) || r.Dev == "" {
			return
		}
		if !found || r.Dst.Bits() > best.Dst.Bits() || r.Dst.Bits() == best.Dst.Bits() && r.Metric < best.Metric {
			best, found = r, true
		}
	}
	for _, r := range allRoutes(inv) {
		consider(r)
	}
	if !found {
		return "", netip.Addr{}
	}
	return best.Dev, source(inv, best, a)
}

// allRoutes returns the listed routes, followed by the routes of the links' own subnets.
func allRoutes(inv netif.Inventory) []netif.Route {
	routes := slices.Clone(inv.Routes)
	for _, l := range inv.Links {
		for _, own := range l.Addrs {
			if l.Flags&netif.Up != 0 && !own.IsSingleIP() && !own.Addr().IsLoopback() {
				routes = append(routes, netif.Route{Dst: own.Masked(), Dev: l.Name, Src: own.Addr()})
			}
		}
	}
	return routes
}

// source returns the source address of packets on a route.
func source(inv netif.Inventory, r netif.Route, to netip.Addr) netip.Addr {
	if r.Src.IsValid() {
		return r.Src
	}
	for _, own := range linkNamed(inv, r.Dev).Addrs {
		if own.Addr().Is4() == to.Is4() {
			return own.Addr()
		}
	}
	return netip.Addr{}
}
