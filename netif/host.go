package netif

import (
	"cmp"
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
	speeds map[speedKey]int    // results of speed for virtual links
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
		speeds: make(map[speedKey]int),
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

// loopbackDown returns the loopback if it is down, else nil. Even packets between two
// addresses of one host use the loopback.
func (h *host) loopbackDown() *Link {
	for i := range h.links {
		if l := &h.links[i]; l.ARPHRD == arphrdLoopback && l.Flags&Up == 0 {
			return l
		}
	}
	return nil
}

// lowerDevices returns a link and its lower devices: the ports of a bond or bridge, or the link
// below a vlan. A tunnel has no lower device here, because encapsulation costs more than
// forwarding.
func (h *host) lowerDevices(l *Link) []*Link {
	found := []*Link{l}
	seen := map[string]bool{l.Name: true}
	level := found
	for depth := 0; depth < maxNesting && len(level) > 0; depth++ {
		var next []*Link
		for _, at := range level {
			below := h.ports[at.Name]
			if p := h.byName[at.Parent]; p != nil && forwardsToParent(at.Kind) {
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

func (h *host) rate(l *Link, s scope) rating {
	r := rating{preferred: s.prefers(l), kind: cmp.Or(l.Kind, l.ARPHRD), speed: h.speed(l, maxNesting), mtu: l.MTU, index: l.Index}
	for _, below := range h.lowerDevices(l) {
		r.class = max(r.class, h.classOf(below))
		r.rdma = r.rdma || isFabric(below)
	}
	out := h.tables[0].byDst[s.family.defaultPrefix()]
	r.defaultRoute = slices.ContainsFunc(out, func(o Route) bool { return o.Dev == l.Name && o.Metric == out[0].Metric })
	return r
}

// rateToward returns the rating of l for packets from src, an address of l, to peer. If l carries
// no packets itself (an address on lo), the rating is the worst of the links that they leave by.
func (h *host) rateToward(src, peer netip.Addr, l *Link, s scope) rating {
	var carriers []*Link
	for _, p := range h.egressPathsFrom(src, peer) {
		if dev := h.byName[p.dev]; p.link == l.Name && dev != nil {
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
