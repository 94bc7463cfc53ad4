package netif

import (
	"net/netip"
	"slices"
)

// A routeTable finds the longest matching prefix in a time that does not depend on the number
// of routes. It stores routes by destination and tries the existing prefix lengths, longest
// first.
type routeTable struct {
	byDst map[netip.Prefix][]Route // by metric, then in the order of the inventory
	bits4 []int                    // prefix lengths of IPv4 routes, longest first
	bits6 []int
}

// newRouteTables groups the routes of an inventory by table. The main table has key 0 and
// always exists.
func newRouteTables(inv *Inventory) map[int]*routeTable {
	tables := map[int]*routeTable{0: {byDst: make(map[netip.Prefix][]Route, len(inv.Routes))}}
	for _, r := range inv.Routes {
		t := tables[mainIsZero(r.Table)]
		if t == nil {
			t = &routeTable{byDst: make(map[netip.Prefix][]Route)}
			tables[r.Table] = t
		}
		t.byDst[r.Dst] = append(t.byDst[r.Dst], r)
	}
	tables[0].connect(inv)
	for _, t := range tables {
		t.order()
	}
	return tables
}

// connect adds the route that the kernel creates for the subnet of each address, unless the
// table has a route to that subnet. Hand-written inventories often omit these routes.
func (t *routeTable) connect(inv *Inventory) {
	connected := make(map[netip.Prefix][]Route)
	for i := range inv.Links {
		l := &inv.Links[i]
		if l.Flags&Up == 0 || l.ARPHRD == arphrdLoopback {
			continue
		}
		for _, a := range l.Addrs {
			net := a.Masked()
			if _, known := t.byDst[net]; !known && !a.IsSingleIP() && isUsableAddr(a.Addr()) {
				connected[net] = append(connected[net], Route{Dst: net, Dev: l.Name, Src: a.Addr()})
			}
		}
	}
	for net, routes := range connected {
		t.byDst[net] = routes
	}
}

// order sorts the routes to each destination and collects the prefix lengths.
func (t *routeTable) order() {
	for net, routes := range t.byDst {
		slices.SortStableFunc(routes, func(a, b Route) int { return a.Metric - b.Metric })
		lengths := &t.bits4
		if net.Addr().Is6() {
			lengths = &t.bits6
		}
		if !slices.Contains(*lengths, net.Bits()) {
			*lengths = append(*lengths, net.Bits())
		}
	}
	for _, lengths := range [][]int{t.bits4, t.bits6} {
		slices.SortFunc(lengths, func(a, b int) int { return b - a })
	}
}

// lookup returns the routes that packets to a may use, or nil if there is none. The first is
// the kernel's choice for a socket that is not bound to an interface. The others have the same
// prefix and are equivalent: they have the same metric or are on-link.
func (t *routeTable) lookup(a netip.Addr) []Route {
	lengths := t.bits4
	if a.Is6() {
		lengths = t.bits6
	}
	for _, bits := range lengths {
		net, err := a.Prefix(bits)
		if err != nil {
			continue
		}
		routes := t.byDst[net]
		if len(routes) == 0 {
			continue
		}
		equal := func(r Route) bool {
			onLink := !r.Via.IsValid() && bits > 0
			return r.Metric == routes[0].Metric || onLink
		}
		if !slices.ContainsFunc(routes, func(r Route) bool { return !equal(r) }) {
			return routes
		}
		return slices.DeleteFunc(slices.Clone(routes), func(r Route) bool { return !equal(r) })
	}
	return nil
}

// splits reports whether a route covers only a part of net, so that addresses in net may use
// different paths.
func (t *routeTable) splits(net netip.Prefix) bool {
	for dst := range t.byDst {
		if dst.Bits() > net.Bits() && net.Contains(dst.Addr()) {
			return true
		}
	}
	return false
}
