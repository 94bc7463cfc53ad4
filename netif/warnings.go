package netif

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// maxIncompleteNetworks limits how many networks are searched for among the hosts after the first
// two. Each network requires a check of every host.
const maxIncompleteNetworks = 4

// missedWarnings returns a warning for each better network that some hosts lack. A broken
// interface must not slow down a whole job silently.
func (c *cluster) missedWarnings(winner *network, nets []*network) []string {
	if c.scope.named != "" {
		return nil
	}
	var missed []*network
	for _, n := range slices.Concat(nets, c.networksMissingHosts(nets)) {
		if n.gap == "" || n.name == winner.name || n.rating.class == classLocal || !c.isIntended(n) {
			continue
		}
		// Several addresses may have produced the same network.
		same := slices.IndexFunc(missed, func(m *network) bool { return m.name == n.name })
		switch {
		case same < 0:
			missed = append(missed, n)
		case len(n.absent) < len(missed[same].absent):
			missed[same] = n
		}
	}
	var warnings []string
	for _, n := range missed {
		if q := decisive(winner.rating, n.rating); q != nil {
			warnings = append(warnings, fmt.Sprintf("%s would be better (%s) but does not reach every host: %s",
				n.name, q.reasonFor(n.rating), c.describeGaps(n)))
		}
	}
	return warnings
}

// decisive returns the criterion that prefers b over a. It returns nil if only the order of
// the interfaces prefers b or if a is better.
func decisive(a, b rating) *criterion {
	q := selectBest([]rating{a, b}).defeats[0].criterion
	if q == &criteria[len(criteria)-1] {
		return nil
	}
	return q
}

// nearMissWarnings returns a warning for each network of all hosts that loses only because at
// most half of the hosts have a smaller MTU on it than the others.
func (c *cluster) nearMissWarnings(winner *network, nets []*network) []string {
	if c.scope.named != "" {
		return nil
	}
	var warnings []string
	for _, n := range nets {
		if n.gap != "" || n == winner || decisive(winner.rating, n.rating) != nil {
			continue
		}
		even, least := n.rating, n.rating.mtu
		for _, r := range n.rates {
			even.mtu = max(even.mtu, r.mtu)
		}
		var small []string
		for i, r := range n.rates {
			if r.mtu < even.mtu {
				small = append(small, fmt.Sprintf("%s on %s", n.chosen[i].link.Name, c.hosts[i].name))
			}
		}
		if 2*len(small) > len(c.hosts) || decisive(winner.rating, even) == nil {
			continue
		}
		text := fmt.Sprintf("%s would be better except for mtu %d of %s (mtu %d elsewhere)", n.name, least, format.List(small, maxNames), even.mtu)
		if !slices.Contains(warnings, text) {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// networksMissingHosts builds networks from addresses that are not in nets, on all hosts except
// the first two. Networks with the most hosts come first.
func (c *cluster) networksMissingHosts(nets []*network) []*network {
	covered := make(map[*member]bool)
	cover := func(n *network) {
		for _, options := range n.options {
			for _, m := range options {
				covered[m] = true
			}
		}
	}
	for _, n := range nets {
		cover(n)
	}
	type group struct {
		seed  *member
		from  int
		hosts int
	}
	groups := make(map[string]*group)
	var order []*group
	for i := 2; i < len(c.hosts); i++ {
		for _, m := range c.members[i] {
			if covered[m] {
				continue
			}
			key := m.addr.Masked().String()
			if m.addr.IsSingleIP() {
				key = m.link.Name
			}
			g := groups[key]
			if g == nil {
				g = &group{seed: m, from: i}
				groups[key] = g
				order = append(order, g)
			}
			g.hosts++
		}
	}
	slices.SortStableFunc(order, func(a, b *group) int { return cmp.Compare(b.hosts, a.hosts) })
	var found []*network
	for _, g := range order {
		if len(found) == maxIncompleteNetworks {
			break
		}
		if covered[g.seed] || c.hosts[g.from].rate(g.seed.link, c.scope).class == classLocal {
			continue
		}
		n := c.grow(g.seed, g.from)
		cover(n)
		found = append(found, n)
	}
	return found
}

// isIntended reports whether a network that some hosts lack was meant to connect hosts. Either
// two hosts have it, or a host without it has a broken interface for it.
func (c *cluster) isIntended(n *network) bool {
	if len(n.absent) < len(c.hosts)-1 {
		return true
	}
	return slices.ContainsFunc(n.absent, func(i int) bool {
		return !n.seed.addr.IsSingleIP() && len(c.inSubnet(i, n.seed.addr.Masked())) > 0 || c.downCounterpart(n, i) != nil
	})
}

// downCounterpart returns the unusable interface that probably should connect a host to a
// network, or nil. Compared with the interface of seed, it has the same kind and the same name or
// driver, or both have RDMA. It is unusable because it is down or has no carrier or address.
func (c *cluster) downCounterpart(n *network, at int) *Link {
	h, l := c.hosts[at], n.seed.link
	var counterpart *Link
	for k := range h.links {
		o := &h.links[k]
		isSimilar := o.Kind == l.Kind && o.ARPHRD == l.ARPHRD &&
			(o.Name == l.Name || o.Driver != "" && o.Driver == l.Driver || isFabric(o) && isFabric(l))
		if !isSimilar || o.Master != "" || o.ARPHRD == arphrdLoopback || slices.Contains(c.scope.exclude, o.Name) || h.unusableReason(o, c.scope) == "" {
			continue
		}
		if o.Name == l.Name {
			return o
		}
		if counterpart == nil {
			counterpart = o
		}
	}
	return counterpart
}

// describeGaps describes which hosts lack a network, and why.
func (c *cluster) describeGaps(n *network) string {
	if len(n.absent) == 0 {
		return n.gap
	}
	var reasons []string
	for _, i := range n.absent[:min(len(n.absent), maxNames)] {
		reason := c.absenceReason(n.seed, n.from, i)
		subnet := n.seed.addr.Masked()
		if counterpart := c.downCounterpart(n, i); counterpart != nil && (subnet.IsSingleIP() || len(c.inSubnet(i, subnet)) == 0) {
			reason = fmt.Sprintf("%s on %s is unusable: %s", counterpart.Name, c.hosts[i].name, c.hosts[i].unusableReason(counterpart, c.scope))
		}
		reasons = append(reasons, reason)
	}
	text := strings.Join(reasons, "; ")
	if more := len(n.absent) - len(reasons); more > 0 {
		text += fmt.Sprintf("; and %d more of the %d hosts lack it", more, len(c.hosts))
	}
	return text
}

// mtuWarning returns a warning if the MTU of a network differs between hosts. A host with a
// smaller MTU may silently drop larger packets.
func (c *cluster) mtuWarning(n *network) []string {
	large, small, smaller := 0, 0, 0
	for i, r := range n.rates {
		if r.mtu > n.rates[large].mtu {
			large = i
		}
		if r.mtu < n.rates[small].mtu {
			small = i
		}
	}
	for _, r := range n.rates {
		if r.mtu < n.rates[large].mtu {
			smaller++
		}
	}
	if smaller == 0 {
		return nil
	}
	text := fmt.Sprintf("mtu differs: %d on %s (%s), %d on %s (%s)",
		n.rates[large].mtu, c.hosts[large].name, n.chosen[large].link.Name,
		n.rates[small].mtu, c.hosts[small].name, n.chosen[small].link.Name)
	if smaller > 1 {
		text += fmt.Sprintf(", less than the largest on %d hosts", smaller)
	}
	return []string{text + "; large packets may be lost, which looks like a hang: set the same mtu on all hosts"}
}

// addRouteWarnings adds warnings about the routes to the peers. It corrects the MTU if packets
// leave by other links.
func (h *host) addRouteWarnings(c *Choice, peers []netip.Addr) {
	var carriers []string
	var elsewhere netip.Addr // first peer that packets reach by a different interface
	elsewhereCount := 0
	var ruleOnly netip.Addr // first peer with a route only because of a source rule
	for _, p := range peers {
		paths, bound := h.egressPaths(p), h.egressPathsFrom(c.Addr, p)
		if len(paths) == 0 && len(bound) > 0 && !ruleOnly.IsValid() {
			ruleOnly = p
		}
		if len(paths) > 0 && paths[0].link != c.Interface {
			if elsewhereCount++; elsewhereCount == 1 {
				elsewhere = p
			}
			continue
		}
		for _, path := range bound {
			if path.link == c.Interface && path.dev != c.Interface && !slices.Contains(carriers, path.dev) {
				carriers = append(carriers, path.dev)
			}
		}
	}
	if ruleOnly.IsValid() {
		c.Warnings = append(c.Warnings, fmt.Sprintf("no route to %s unless the socket is bound to %s: a routing rule matches this source address", ruleOnly, c.Addr))
	}
	if elsewhereCount > 0 {
		c.Warnings = append(c.Warnings, h.asymmetricWarning(c, elsewhere, elsewhereCount))
	}
	if len(carriers) > 0 {
		c.MTU = h.byName[carriers[0]].MTU
		for _, dev := range carriers[1:] {
			c.MTU = min(c.MTU, h.byName[dev].MTU)
		}
		text := fmt.Sprintf("%s is on %s, and its packets leave by %s", c.Addr, c.Interface, format.List(carriers, maxNames))
		if c.Shadowed {
			text += fmt.Sprintf("; programs that receive only the name %s use a different address", c.Interface)
		}
		c.Warnings = append(c.Warnings, text)
	}
}

// asymmetricWarning returns a warning that a socket without a bound address sends and receives
// on different interfaces.
func (h *host) asymmetricWarning(c *Choice, peer netip.Addr, peers int) string {
	routes, _ := h.lookup(netip.Addr{}, peer)
	leaves := h.egressPaths(peer)[0].dev
	text := fmt.Sprintf("asymmetric route: packets to %s", peer)
	if peers > 1 {
		text += fmt.Sprintf(" and %d more peers", peers-1)
	}
	// A source address has no effect without a rule for it.
	if bound := h.egressPathsFrom(c.Addr, peer); len(bound) > 0 && bound[0].dev == c.Interface {
		return text + fmt.Sprintf(" leave by %s unless the socket is bound to %s, because of a routing rule", leaves, c.Addr)
	}
	text += fmt.Sprintf(" leave by %s unless the socket is bound to the device %s", leaves, c.Interface)
	if slices.ContainsFunc(routes, func(r Route) bool { return r.Dev == c.Interface }) {
		return text + fmt.Sprintf("; both interfaces have a route to %s: give each its own subnet, raise the metric of %s, or add a rule for its address (ip rule add from %s table N)", routes[0].Dst, leaves, c.Addr)
	}
	return text + fmt.Sprintf("; the route to %s is on %s", routes[0].Dst, leaves)
}
