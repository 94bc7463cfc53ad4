package netif

import (
	"fmt"
	"net/netip"
	"slices"
)

// IDs of the named routing tables (rt_tables of iproute2).
const (
	tableDefault = 253
	tableMain    = 254
	tableLocal   = 255
)

// mainIsZero maps the main table to 0, its only ID in this package.
func mainIsZero(table int) int {
	if table == tableMain {
		return 0
	}
	return table
}

// hasTable reports whether a rule selects a routing table.
func (r *Rule) hasTable() bool { return r.Action == "" && r.Goto == 0 }

// hasSource reports whether a rule applies only to some source addresses.
func (r *Rule) hasSource() bool { return r.From.IsValid() && r.From.Bits() > 0 }

// matches reports whether a rule matches packets of this host from src to dst. An invalid src is
// a socket without a bound address, for which the kernel uses source 0.0.0.0. Sockets are not
// bound to an interface and carry no mark. Packets of the host itself arrive on lo.
func (r *Rule) matches(src, dst netip.Addr) bool {
	for _, p := range []netip.Prefix{r.From, r.To} {
		if p.IsValid() && p.Addr().Is4() != dst.Is4() {
			return false
		}
	}
	match := (!r.hasSource() || src.IsValid() && r.From.Contains(src)) &&
		(!r.To.IsValid() || r.To.Contains(dst)) &&
		(r.IIF == "" || r.IIF == "lo") && r.OIF == "" && r.Mark == 0
	return match != r.Not
}

// newRules returns the rules of an inventory in the kernel's order. It omits the local table
// because isLocal handles a host's own addresses. If no rule names the main table, it adds a
// rule for it with the kernel's priority.
func newRules(inv *Inventory) []Rule {
	rules := make([]Rule, 0, len(inv.Rules)+1)
	hasMain := false
	for _, r := range inv.Rules {
		if r.Table == tableLocal {
			continue
		}
		if r.hasTable() {
			r.Table = mainIsZero(r.Table)
			hasMain = hasMain || r.Table == 0
		}
		rules = append(rules, r)
	}
	if !hasMain {
		rules = append(rules, Rule{Priority: 32766})
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return a.Priority - b.Priority })
	return rules
}

// lookup returns the possible routes of packets from src to dst, the kernel's choice first.
// src is invalid for a socket without a bound address. lookup also returns the rule that
// decided, or nil if there is no route. For a rule that drops packets, it returns a route that
// drops them.
func (h *host) lookup(src, dst netip.Addr) ([]Route, *Rule) {
	from := 0 // priority of the last goto
	for i := range h.rules {
		r := &h.rules[i]
		if r.Priority < from || !r.matches(src, dst) {
			continue
		}
		if r.Goto != 0 {
			from = r.Goto
			continue
		}
		if r.Action != "" {
			return dropped, r
		}
		t := h.tables[r.Table]
		if t == nil {
			continue
		}
		routes := t.lookup(dst)
		if len(routes) == 0 || routes[0].Throw || r.Suppress != nil && routes[0].Dst.Bits() <= *r.Suppress {
			continue
		}
		return routes, r
	}
	return nil, nil
}

// dropped is the route of a rule that drops packets.
var dropped = []Route{{}}

// splits reports whether addresses in net may use different paths because a route or rule
// applies to only a part of net.
func (h *host) splits(net netip.Prefix) bool {
	for i := range h.rules {
		r := &h.rules[i]
		if r.To.IsValid() && r.To.Bits() > net.Bits() && net.Contains(r.To.Addr()) {
			return true
		}
		if t := h.tables[r.Table]; r.hasTable() && t != nil && t.splits(net) {
			return true
		}
	}
	return false
}

// describeDrop describes a rule that drops packets to peer.
func (r *Rule) describeDrop(peer netip.Addr) string {
	text := fmt.Sprintf("rule %d (", r.Priority)
	if r.Not {
		text += "not "
	}
	if r.hasSource() {
		text += fmt.Sprintf("from %s ", r.From)
	}
	if r.To.IsValid() {
		text += fmt.Sprintf("to %s ", r.To)
	}
	return fmt.Sprintf("%s%s) drops packets to %s", text, r.Action, peer)
}

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

// lookup returns the routes that packets to a may use, or nil without a route. The first is
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

// An egressPath is the interface that packets to a peer leave by.
type egressPath struct {
	dev  string // link that they leave by
	link string // link that has their source address; differs from dev if the address is on lo
}

// egressPaths returns the egress paths to peer for a socket without a bound address, the kernel's
// choice first. It returns none if there is no route or the route drops packets. The kernel
// looks up the route twice: once to select the source address, and once with it.
func (h *host) egressPaths(peer netip.Addr) []egressPath {
	routes, first := h.lookup(netip.Addr{}, peer)
	if len(routes) == 0 || routes[0].Dev == "" {
		return nil
	}
	paths := make([]egressPath, 0, len(routes))
	for _, r := range routes {
		if r.Dev == "" {
			continue
		}
		path := egressPath{dev: r.Dev, link: h.sender(r)}
		if src := h.sourceOf(r, peer); src.IsValid() && h.hasSourceRules() {
			if again, rule := h.lookup(src, peer); rule != nil && (rule != first || rule.hasSource()) {
				path.dev = again[0].Dev
			}
		}
		if path.dev != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// egressPathsFrom returns the egress paths of packets from src, an address of this host, to
// peer, in the order of egressPaths.
func (h *host) egressPathsFrom(src, peer netip.Addr) []egressPath {
	routes, rule := h.lookup(src, peer)
	if len(routes) == 0 || routes[0].Dev == "" {
		return nil
	}
	paths := make([]egressPath, 0, len(routes))
	for _, r := range routes {
		if r.Dev != "" {
			paths = append(paths, egressPath{dev: r.Dev, link: h.senderFrom(src, r, rule)})
		}
	}
	return paths
}

// hasSourceRules reports whether any rule depends on the source address.
func (h *host) hasSourceRules() bool {
	return slices.ContainsFunc(h.rules, func(r Rule) bool { return r.hasSource() })
}

// sourceOf returns the source address that the kernel selects for a route.
func (h *host) sourceOf(r Route, peer netip.Addr) netip.Addr {
	if r.Src.IsValid() {
		return r.Src
	}
	l := h.byName[r.Dev]
	if l == nil {
		return netip.Addr{}
	}
	var first netip.Addr
	for _, a := range l.Addrs {
		switch ip := a.Addr(); {
		case ip.Is4() != peer.Is4() || ip.IsLinkLocalUnicast():
		case a.Contains(peer) || r.Via.IsValid() && a.Contains(r.Via):
			return ip
		case !first.IsValid():
			first = ip
		}
	}
	return first
}

// sender returns the link that has the source address of packets on a route.
func (h *host) sender(r Route) string {
	if r.Src.IsValid() {
		if link, known := h.owner[r.Src]; known {
			return link
		}
	}
	return r.Dev
}

// senderFrom returns the link that has the source address of packets from src. A source rule
// for an address on lo or a dummy link applies to that address. The sender is then that link,
// because it carries no packets itself.
func (h *host) senderFrom(src netip.Addr, r Route, rule *Rule) string {
	if !rule.hasSource() {
		return h.sender(r)
	}
	if l := h.byName[h.owner[src]]; l != nil && (l.ARPHRD == arphrdLoopback || l.Kind == "dummy") {
		return l.Name
	}
	return r.Dev
}

// reaches reports whether packets from src, an address of the link, to peer leave by the link.
// If the link carries no packets itself, their route must belong to its address. reaches
// allocates nothing because a large job calls it millions of times.
func (h *host) reaches(link string, src, peer netip.Addr) bool {
	routes, rule := h.lookup(src, peer)
	if len(routes) == 0 || routes[0].Dev == "" {
		return false
	}
	for _, r := range routes {
		if r.Dev != "" && h.senderFrom(src, r, rule) == link {
			return true
		}
	}
	return false
}

// reachAll returns the given addresses of a link from which packets to all peers leave by that
// link.
func (h *host) reachAll(l *Link, addrs []netip.Prefix, peers []netip.Addr) []netip.Prefix {
	var found []netip.Prefix
	for _, a := range addrs {
		if !slices.ContainsFunc(peers, func(p netip.Addr) bool { return !h.reaches(l.Name, a.Addr(), p) }) {
			found = append(found, a)
		}
	}
	return found
}

// carries reports whether packets from src to peer leave by the link itself.
func (h *host) carries(l *Link, src, peer netip.Addr) bool {
	return slices.ContainsFunc(h.egressPathsFrom(src, peer), func(p egressPath) bool { return p.dev == l.Name })
}

// describeRoute describes the route to peer.
func (h *host) describeRoute(peer netip.Addr) string {
	routes, rule := h.lookup(netip.Addr{}, peer)
	switch {
	case len(routes) == 0:
		return fmt.Sprintf("no route to %s", peer)
	case rule.Action != "":
		return rule.describeDrop(peer)
	case routes[0].Dev == "":
		return fmt.Sprintf("the route to %s drops packets (blackhole or unreachable %s)", peer, routes[0].Dst)
	}
	paths := h.egressPaths(peer)
	if len(paths) == 0 {
		if _, rule := h.lookup(h.sourceOf(routes[0], peer), peer); rule != nil && rule.Action != "" {
			return rule.describeDrop(peer)
		}
		return fmt.Sprintf("the rule for %s drops packets to %s", h.sourceOf(routes[0], peer), peer)
	}
	if p := paths[0]; p.link != p.dev {
		return fmt.Sprintf("packets to %s leave by %s with the address of %s", peer, p.dev, p.link)
	}
	return fmt.Sprintf("the route to %s leaves by %s", peer, paths[0].dev)
}

// describeRouteFrom describes the route from src to peer. Unless a source rule decides, it returns
// the result of describeRoute.
func (h *host) describeRouteFrom(src, peer netip.Addr) string {
	routes, rule := h.lookup(src, peer)
	switch {
	case rule == nil && h.hasSourceRules():
		return fmt.Sprintf("no rule matches packets from %s to %s", src, peer)
	case rule != nil && rule.Action != "":
		return rule.describeDrop(peer)
	case rule == nil || !rule.hasSource():
		return h.describeRoute(peer)
	case routes[0].Dev == "":
		return fmt.Sprintf("rule %d (from %s, table %d) drops packets to %s", rule.Priority, rule.From, rule.Table, peer)
	}
	return fmt.Sprintf("packets from %s to %s leave by %s (rule %d: from %s, table %d)", src, peer, routes[0].Dev, rule.Priority, rule.From, rule.Table)
}
