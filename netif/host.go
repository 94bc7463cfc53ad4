package netif

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

const arphrdLoopback = "loopback"

// maxNesting limits walks over masters and parents, so that they end if an inventory has a
// cycle. The value is the kernel's limit on stacked devices.
const maxNesting = 8

// A host is an inventory that is indexed for lookups.
type host struct {
	name   string // for messages
	links  []Link // by interface index
	byName map[string]*Link
	ports  map[string][]*Link // ports of each bond or bridge
	owner  map[netip.Addr]string
	tables map[int]*routeTable // the main table is 0
	rules  []Rule              // in the kernel's order
}

func newHost(inv *Inventory, name string) *host {
	h := &host{
		name:   name,
		links:  sortedByIndex(inv.Links),
		byName: make(map[string]*Link, len(inv.Links)),
		ports:  make(map[string][]*Link),
		owner:  make(map[netip.Addr]string, len(inv.Links)),
		tables: newRouteTables(inv),
		rules:  newRules(inv),
	}
	for i := range h.links {
		l := &h.links[i]
		h.byName[l.Name] = l
		if l.Master != "" {
			h.ports[l.Master] = append(h.ports[l.Master], l)
		}
		for _, a := range l.Addrs {
			if _, taken := h.owner[a.Addr()]; !taken {
				h.owner[a.Addr()] = l.Name
			}
		}
	}
	return h
}

// isLocal reports whether packets to a stay on this host.
func (h *host) isLocal(a netip.Addr) bool {
	_, own := h.owner[a]
	return own || a.IsLoopback()
}

// darkLoopback returns the loopback if it is down, else nil. Even packets between two
// addresses of one host use the loopback.
func (h *host) darkLoopback() *Link {
	for i := range h.links {
		if l := &h.links[i]; l.ARPHRD == arphrdLoopback && l.Flags&Up == 0 {
			return l
		}
	}
	return nil
}

// A way is an egress path of packets to a peer.
type way struct {
	dev  string // link that they leave by
	link string // link that has their source address; differs from dev if the address is on lo
}

// ways returns the egress paths to peer for a socket without a bound address, the kernel's
// choice first. It returns none if there is no route or the route drops packets. The kernel
// looks up the route twice: once to select the source address, and once with it.
func (h *host) ways(peer netip.Addr) []way {
	routes, first := h.lookup(netip.Addr{}, peer)
	if len(routes) == 0 || routes[0].Dev == "" {
		return nil
	}
	ways := make([]way, 0, len(routes))
	for _, r := range routes {
		if r.Dev == "" {
			continue
		}
		w := way{dev: r.Dev, link: h.sender(r)}
		if src := h.sourceOf(r, peer); src.IsValid() && h.isSourced() {
			if again, rule := h.lookup(src, peer); rule != nil && (rule != first || rule.isSourced()) {
				w.dev = again[0].Dev
			}
		}
		if w.dev != "" {
			ways = append(ways, w)
		}
	}
	return ways
}

// waysFrom returns the egress paths of packets from src, an address of this host, to peer, in
// the order of ways.
func (h *host) waysFrom(src, peer netip.Addr) []way {
	routes, rule := h.lookup(src, peer)
	if len(routes) == 0 || routes[0].Dev == "" {
		return nil
	}
	ways := make([]way, 0, len(routes))
	for _, r := range routes {
		if r.Dev != "" {
			ways = append(ways, way{dev: r.Dev, link: h.senderFrom(src, r, rule)})
		}
	}
	return ways
}

// isSourced reports whether any rule depends on the source address.
func (h *host) isSourced() bool {
	return slices.ContainsFunc(h.rules, func(r Rule) bool { return r.isSourced() })
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

// senderFrom is sender for packets from src. A source rule for an address on lo or a dummy
// link applies to that address. The sender is then that link, because it carries no packets
// itself.
func (h *host) senderFrom(src netip.Addr, r Route, rule *Rule) string {
	if !rule.isSourced() {
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
	return slices.ContainsFunc(h.waysFrom(src, peer), func(w way) bool { return w.dev == l.Name })
}

// wayTo describes the route to peer.
func (h *host) wayTo(peer netip.Addr) string {
	routes, rule := h.lookup(netip.Addr{}, peer)
	switch {
	case len(routes) == 0:
		return fmt.Sprintf("no route leads to %s", peer)
	case rule.Action != "":
		return rule.drops(peer)
	case routes[0].Dev == "":
		return fmt.Sprintf("the route to %s drops packets (blackhole or unreachable %s)", peer, routes[0].Dst)
	}
	ways := h.ways(peer)
	if len(ways) == 0 {
		if _, rule := h.lookup(h.sourceOf(routes[0], peer), peer); rule != nil && rule.Action != "" {
			return rule.drops(peer)
		}
		return fmt.Sprintf("the rule for %s drops packets to %s", h.sourceOf(routes[0], peer), peer)
	}
	if w := ways[0]; w.link != w.dev {
		return fmt.Sprintf("packets to %s leave by %s with the address of %s", peer, w.dev, w.link)
	}
	return fmt.Sprintf("the route to %s leaves by %s", peer, ways[0].dev)
}

// wayFrom describes the route from src to peer. It equals wayTo unless a source rule decides.
func (h *host) wayFrom(src, peer netip.Addr) string {
	routes, rule := h.lookup(src, peer)
	switch {
	case rule == nil && h.isSourced():
		return fmt.Sprintf("no rule leads from %s to %s", src, peer)
	case rule != nil && rule.Action != "":
		return rule.drops(peer)
	case rule == nil || !rule.isSourced():
		return h.wayTo(peer)
	case routes[0].Dev == "":
		return fmt.Sprintf("rule %d (from %s, table %d) drops packets to %s", rule.Priority, rule.From, rule.Table, peer)
	}
	return fmt.Sprintf("packets from %s to %s leave by %s (rule %d: from %s, table %d)", src, peer, routes[0].Dev, rule.Priority, rule.From, rule.Table)
}

// standsOn returns a link and its lower devices: the ports of a bond or bridge, or the link
// below a vlan. A tunnel has no lower device here, because encapsulation costs more than
// forwarding.
func (h *host) standsOn(l *Link) []*Link {
	found := []*Link{l}
	seen := map[string]bool{l.Name: true}
	level := found
	for depth := 0; depth < maxNesting && len(level) > 0; depth++ {
		var next []*Link
		for _, at := range level {
			below := h.ports[at.Name]
			if p := h.byName[at.Parent]; p != nil && passesOn(at.Kind) {
				below = append(below[:len(below):len(below)], p)
			}
			for _, b := range below {
				if !seen[b.Name] {
					seen[b.Name] = true
					next = append(next, b)
				}
			}
		}
		found = append(found, next...)
		level = next
	}
	return found
}

// rate returns the properties by which links are ranked.
func (h *host) rate(l *Link, s scope) rating {
	r := rating{preferred: s.prefers(l), kind: cmp.Or(l.Kind, l.ARPHRD), speed: h.speed(l, maxNesting), mtu: l.MTU, index: l.Index}
	for _, below := range h.standsOn(l) {
		r.class = max(r.class, h.classOf(below))
		r.rdma = r.rdma || isFabric(below)
	}
	out := h.tables[0].byDst[s.family.everywhere()]
	r.defaultRoute = slices.ContainsFunc(out, func(o Route) bool { return o.Dev == l.Name && o.Metric == out[0].Metric })
	return r
}

// rateToward is rate for packets from src, an address of l, to peer. If l carries no packets
// itself (an address on lo), the rating is the worst of the links that they leave by.
func (h *host) rateToward(src, peer netip.Addr, l *Link, s scope) rating {
	var carriers []*Link
	for _, w := range h.waysFrom(src, peer) {
		if dev := h.byName[w.dev]; w.link == l.Name && dev != nil {
			carriers = append(carriers, dev)
		}
	}
	if len(carriers) == 0 || slices.Contains(carriers, l) {
		return h.rate(l, s)
	}
	r := h.rate(carriers[0], s)
	for _, other := range carriers[1:] {
		r = r.worst(h.rate(other, s))
	}
	r.index = l.Index
	return r
}

func sortedByIndex(links []Link) []Link {
	links = slices.Clone(links)
	slices.SortStableFunc(links, func(a, b Link) int { return a.Index - b.Index })
	return links
}
