package netif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxStrays limits how many networks are searched for among the hosts after the first two.
// Each network requires a check of every host.
const maxStrays = 4

// missedWarnings returns a warning for each better network that some hosts lack. A broken
// interface must not slow down a whole job silently.
func (c *cluster) missedWarnings(winner *network, nets []*network) []string {
	if c.scope.named != "" {
		return nil
	}
	var missed []*network
	for _, n := range slices.Concat(nets, c.strays(nets)) {
		if n.gap == "" || n.name == winner.name || n.rating.class == classLocal || !c.isMeant(n) {
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
				n.name, q.praise(n.rating), c.gaps(n)))
		}
	}
	return warnings
}

// decisive returns the criterion that prefers b over a. It returns nil if only the order of
// the interfaces prefers b or if a is better.
func decisive(a, b rating) *criterion {
	q := rank([]rating{a, b}).defeats[0].criterion
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
		text := fmt.Sprintf("%s would win but for mtu %d of %s (%d elsewhere)", n.name, least, enumerate(small, fewWords), even.mtu)
		if !slices.Contains(warnings, text) {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// strays builds networks from addresses that are not in nets, on all hosts except the first
// two. Networks with the most hosts come first.
func (c *cluster) strays(nets []*network) []*network {
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
		if len(found) == maxStrays {
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

// isMeant reports whether a network that some hosts lack was meant to connect hosts. Either
// two hosts have it, or a host without it has a broken interface for it.
func (c *cluster) isMeant(n *network) bool {
	if len(n.absent) < len(c.hosts)-1 {
		return true
	}
	for _, i := range n.absent {
		if !n.seed.addr.IsSingleIP() && len(c.inSubnet(i, n.seed.addr.Masked())) > 0 || c.deadTwin(n, i) != nil {
			return true
		}
	}
	return false
}

// deadTwin returns the unusable interface that probably connects a host to a network. It has
// the same kind, and the same name or driver or also RDMA. It is down, or has no carrier or
// address.
func (c *cluster) deadTwin(n *network, at int) *Link {
	h, l := c.hosts[at], n.seed.link
	var twin *Link
	for k := range h.links {
		o := &h.links[k]
		alike := o.Kind == l.Kind && o.ARPHRD == l.ARPHRD &&
			(o.Name == l.Name || o.Driver != "" && o.Driver == l.Driver || isFabric(o) && isFabric(l))
		if !alike || o.Master != "" || o.ARPHRD == arphrdLoopback || slices.Contains(c.scope.exclude, o.Name) || h.unfit(o, c.scope) == "" {
			continue
		}
		if o.Name == l.Name {
			return o
		}
		if twin == nil {
			twin = o
		}
	}
	return twin
}

// gaps describes which hosts lack a network, and why.
func (c *cluster) gaps(n *network) string {
	if len(n.absent) == 0 {
		return n.gap
	}
	var reasons []string
	for _, i := range n.absent[:min(len(n.absent), fewWords)] {
		reason := c.gapAt(n.seed, n.from, i)
		subnet := n.seed.addr.Masked()
		if twin := c.deadTwin(n, i); twin != nil && (subnet.IsSingleIP() || len(c.inSubnet(i, subnet)) == 0) {
			reason = fmt.Sprintf("%s on %s cannot be used: %s", twin.Name, c.hosts[i].name, c.hosts[i].unfit(twin, c.scope))
		}
		reasons = append(reasons, reason)
	}
	text := strings.Join(reasons, "; ")
	if more := len(n.absent) - len(reasons); more > 0 {
		text += fmt.Sprintf("; and %d more of the %d hosts lack it", more, len(c.hosts))
	}
	return text
}
