package netif

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

const arphrdLoopback = "loopback"

// maxNesting bounds walks over masters and parents (the kernel's own limit on
// stacked devices), so that an inventory with a cycle ends.
const maxNesting = 8

// host is an inventory made ready for lookups.
type host struct {
	name   string // for messages
	links  []Link // in the order of their index
	byName map[string]*Link
	ports  map[string][]*Link // what a bond or bridge is made of
	owner  map[netip.Addr]string
	routes routeTable
}

func newHost(inv *Inventory, name string) *host {
	h := &host{
		name:   name,
		links:  sortedByIndex(inv.Links),
		byName: make(map[string]*Link, len(inv.Links)),
		ports:  make(map[string][]*Link),
		owner:  make(map[netip.Addr]string, len(inv.Links)),
		routes: newRouteTable(inv),
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

// isLocal says whether a packet to a stays on this host.
func (h *host) isLocal(a netip.Addr) bool {
	_, own := h.owner[a]
	return own || a.IsLoopback()
}

// darkLoopback is the loopback if it is switched off: even packets between two
// addresses of one host go by it.
func (h *host) darkLoopback() *Link {
	for i := range h.links {
		if l := &h.links[i]; l.ARPHRD == arphrdLoopback && l.Flags&Up == 0 {
			return l
		}
	}
	return nil
}

// way is one way that packets to a peer may take.
type way struct {
	dev  string // the link that they leave by
	link string // the link that has their source address: dev, but for hosts whose address is on lo
}

// ways lists the ways to peer, the kernel's own choice first. It is empty if
// there is no route or if the route drops packets.
func (h *host) ways(peer netip.Addr) []way {
	routes := h.routes.lookup(peer)
	if len(routes) == 0 || routes[0].Dev == "" {
		return nil
	}
	ways := make([]way, 0, len(routes))
	for _, r := range routes {
		if r.Dev != "" {
			ways = append(ways, way{dev: r.Dev, link: h.sender(r)})
		}
	}
	return ways
}

// sender is the link that has the source address of packets on a route.
func (h *host) sender(r Route) string {
	if r.Src.IsValid() {
		if link, known := h.owner[r.Src]; known {
			return link
		}
	}
	return r.Dev
}

// reaches says whether packets to peer may leave with an address of the link.
// It allocates nothing: a large job asks it millions of times.
func (h *host) reaches(link string, peer netip.Addr) bool {
	routes := h.routes.lookup(peer)
	if len(routes) == 0 || routes[0].Dev == "" {
		return false
	}
	for _, r := range routes {
		if r.Dev != "" && h.sender(r) == link {
			return true
		}
	}
	return false
}

// carries says whether packets to peer leave by the link itself.
func (h *host) carries(l *Link, peer netip.Addr) bool {
	return slices.ContainsFunc(h.ways(peer), func(w way) bool { return w.dev == l.Name })
}

// wayTo puts the route to peer in words.
func (h *host) wayTo(peer netip.Addr) string {
	routes := h.routes.lookup(peer)
	switch {
	case len(routes) == 0:
		return fmt.Sprintf("no route leads to %s", peer)
	case routes[0].Dev == "":
		return fmt.Sprintf("the route to %s drops packets (blackhole or unreachable %s)", peer, routes[0].Dst)
	}
	w := h.ways(peer)[0]
	if w.link != w.dev {
		return fmt.Sprintf("packets to %s leave by %s with the address of %s", peer, w.dev, w.link)
	}
	return fmt.Sprintf("the route to %s leaves by %s", peer, w.dev)
}

// standsOn lists a link and what carries its packets inside this host: the
// parts of a bond or bridge, the link under a vlan. A tunnel stands on nothing:
// it wraps packets, which costs more than passing them on.
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

// passesOn says whether links of this kind hand packets to their parent as they are.
func passesOn(kind string) bool {
	switch kind {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "ipoib":
		return true
	}
	return false
}

// isHardware says whether a link, taken for itself, is a device and not a
// construct of the kernel. A device passed into a container may have lost its
// bus address, but has no kind.
func isHardware(l *Link) bool {
	if l.ARPHRD == arphrdLoopback {
		return false
	}
	return l.PCI != "" || l.ARPHRD == "infiniband" || l.Kind == "" && l.ARPHRD == "ether"
}

// speed is the speed of a link in Mb/s, or -1 if it is not known. A virtual link
// reports a speed too (veth and bridges say 10 Gb/s), but one that is made up:
// only a device's own word counts, or that of a bond of devices.
func (h *host) speed(l *Link, depth int) int {
	ports := h.ports[l.Name]
	bond := l.Kind != "bridge" && slices.ContainsFunc(ports, isHardware)
	if (isHardware(l) || bond) && l.Speed > 0 {
		return l.Speed
	}
	if depth == 0 {
		return -1
	}
	if parent := h.byName[l.Parent]; parent != nil && passesOn(l.Kind) {
		return h.speed(parent, depth-1)
	}
	fastest := -1
	for _, p := range ports {
		fastest = max(fastest, h.speed(p, depth-1))
	}
	return fastest
}

// rate gathers what ranks a link.
func (h *host) rate(l *Link, s scope) rating {
	r := rating{preferred: s.prefers(l), kind: cmp.Or(l.Kind, l.ARPHRD), speed: h.speed(l, maxNesting), mtu: l.MTU, index: l.Index}
	for _, below := range h.standsOn(l) {
		r.hardware = r.hardware || isHardware(below)
		r.rdma = r.rdma || below.HCA != "" || below.ARPHRD == "infiniband"
	}
	if out := h.routes.byDst[s.family.everywhere()]; len(out) > 0 {
		r.defaultRoute = out[0].Dev == l.Name
	}
	return r
}

// rateToward is rate for packets to peer. An address on a link that carries none
// itself, as on lo, is worth what the links are that its packets leave by.
func (h *host) rateToward(peer netip.Addr, l *Link, s scope) rating {
	var carriers []*Link
	for _, w := range h.ways(peer) {
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
