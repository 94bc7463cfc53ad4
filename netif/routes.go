package netif

import (
	"net/netip"
	"slices"
)

// routeTable answers longest-prefix lookups in a time that does not grow with
// the number of routes: it keeps routes by destination and tries the prefix
// lengths that occur, longest first.
type routeTable struct {
	byDst map[netip.Prefix][]Route // ordered by metric, then as listed
	bits4 []int                    // prefix lengths of IPv4 routes, longest first
	bits6 []int
}

// newRouteTables sorts the routes of an inventory by table. The main one, which
// has the key 0, always exists.
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

// connect gives each address the route to its own subnet that the kernel gives
// it, where the table has no route to that subnet at all: an inventory that was
// written by hand often leaves these out.
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

// order sorts the routes to one destination, and lists the prefix lengths.
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

// lookup returns the routes of the table that packets to a may take. The first
// is the one that the kernel takes for a socket that is bound to no interface; the others
// have the same prefix and are as good: the same metric, or on the link itself.
// It returns nil if there is no route.
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

// splits says whether some route goes to a part of net only, so that addresses
// in net may take different ways.
func (t *routeTable) splits(net netip.Prefix) bool {
	for dst := range t.byDst {
		if dst.Bits() > net.Bits() && net.Contains(dst.Addr()) {
			return true
		}
	}
	return false
}
