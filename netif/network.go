package netif

import (
	"fmt"
	"net/netip"
	"slices"
)

// A network is a set of addresses, one per host, that reach each other. Networks that lack a
// host are retained for messages.
type network struct {
	name    string                // subnet, or the address and link of the first host
	options [][]*member           // by host: addresses on this network
	chosen  []*member             // by host; nil if the host is absent
	rates   []rating              // by host: rating of chosen
	rating  rating                // worst of all hosts
	lost    map[*member]string    // why an option was not chosen on its host
	cover   netip.Prefix          // longest prefix that contains all chosen addresses
	absent  []int                 // hosts that it does not reach
	gap     string                // why it does not reach every host, or ""
	seed    *member               // address that it was built from
	from    int                   // host of seed
	beaten  func(host int) string // why a better network won, for a host's report; nil without one
}

// networks builds a network from each address of the first host, because every network of all
// hosts includes one of them. It also builds networks from the remaining addresses of the
// second host, so that a network that only the first host lacks causes a warning. Networks
// with a single subnet come first. Among these and among the others, lower addresses come
// first. Earlier networks win ties, so the result does not depend on which host is first.
func (c *cluster) networks() []*network {
	var subnets, routed []*network
	grown := make(map[*member]bool)
	for from := range 2 {
		for _, seed := range c.members[from] {
			if grown[seed] {
				continue
			}
			n := c.grow(seed, from)
			for _, options := range n.options[:2] {
				for _, m := range options {
					grown[m] = true
				}
			}
			if n.gap == "" && n.name == seed.addr.Masked().String() {
				subnets = append(subnets, n)
			} else {
				routed = append(routed, n)
			}
		}
	}
	byAddress := func(a, b *network) int { return a.cover.Addr().Compare(b.cover.Addr()) }
	slices.SortStableFunc(subnets, byAddress)
	slices.SortStableFunc(routed, byAddress)
	return append(subnets, routed...)
}

// grow finds the addresses on every host that share a network with seed, an address of host
// from.
func (c *cluster) grow(seed *member, from int) *network {
	subnet := seed.addr.Masked()
	n := &network{
		name:    subnet.String(),
		options: make([][]*member, len(c.hosts)),
		chosen:  make([]*member, len(c.hosts)),
		rates:   make([]rating, len(c.hosts)),
		lost:    make(map[*member]string),
		seed:    seed,
		from:    from,
	}
	if subnet.IsSingleIP() {
		n.name = fmt.Sprintf("the network of %s", seed.link.Name)
	}
	var peer *member // first candidate of another host
	for i := range c.hosts {
		if i == from {
			continue
		}
		n.options[i] = c.membersOn(seed, from, i)
		if len(n.options[i]) == 0 {
			n.absent = append(n.absent, i)
			if n.gap == "" {
				n.gap = c.absenceReason(seed, from, i)
			}
		} else if peer == nil {
			peer = n.options[i][0]
		}
	}
	n.options[from] = []*member{seed}
	if peer == nil {
		n.rating = c.hosts[from].rate(seed.link, c.scope)
		return n
	}
	if there := peer.addr.Addr(); c.reaches(from, seed, there) {
		for _, m := range c.inSubnet(from, subnet) {
			if m != seed && !subnet.IsSingleIP() && c.reaches(from, m, there) {
				n.options[from] = append(n.options[from], m)
			}
		}
	} else if n.gap == "" {
		n.gap = fmt.Sprintf("on %s, %s", c.hosts[from].name, c.hosts[from].describeRouteFrom(seed.addr.Addr(), there))
	}
	c.pick(n, from, peer.addr.Addr())
	n.rating = n.rates[from]
	for i := range c.hosts {
		if i != from && len(n.options[i]) > 0 {
			c.pick(n, i, seed.addr.Addr())
			n.rating = n.rating.worst(n.rates[i])
		}
	}
	if n.gap == "" {
		if slices.ContainsFunc(n.chosen, func(m *member) bool { return m.addr.Masked() != subnet }) {
			n.name = fmt.Sprintf("the network of %s", n.chosen[0].link.Name)
		}
		n.cover = n.covering(seed.addr.Addr(), peer.addr.Addr())
		c.checkRoutes(n)
	}
	return n
}

// membersOn returns the members of a host on the network of seed: those in its subnet with a
// route to seed, or else those with routes in both directions.
func (c *cluster) membersOn(seed *member, from, at int) []*member {
	there := seed.addr.Addr()
	if !seed.addr.IsSingleIP() {
		found := c.inSubnet(at, seed.addr.Masked())
		found = slices.DeleteFunc(found, func(m *member) bool { return !c.reaches(at, m, there) })
		if len(found) > 0 {
			return found
		}
	}
	var found []*member
	for _, m := range c.members[at] {
		if c.reaches(from, seed, m.addr.Addr()) && c.reaches(at, m, there) {
			found = append(found, m)
		}
	}
	return found
}

func (c *cluster) inSubnet(at int, subnet netip.Prefix) []*member {
	var found []*member
	for _, m := range c.members[at] {
		if m.addr.Masked() == subnet {
			found = append(found, m)
		}
	}
	return found
}

// reaches reports whether packets from a host to peer leave with the address of m. A named
// interface only needs some route to peer: the user may rely on paths that an inventory does
// not show, such as marks.
func (c *cluster) reaches(at int, m *member, peer netip.Addr) bool {
	if c.scope.named != "" {
		return len(c.hosts[at].egressPaths(peer)) > 0
	}
	return c.hosts[at].reaches(m.link.Name, m.addr.Addr(), peer)
}

// pick chooses among a host's options.
func (c *cluster) pick(n *network, at int, peer netip.Addr) {
	options := n.options[at]
	rates := make([]rating, len(options))
	for k, m := range options {
		rates[k] = c.hosts[at].rateToward(m.addr.Addr(), peer, m.link, c.scope)
	}
	best := selectBest(rates)
	for k, d := range best.defeats {
		if d.criterion != nil {
			name := options[d.to].link.Name
			n.lost[options[k]] = fmt.Sprintf("on the same network as %s, but %s", name, d.criterion.reasonAgainst(rates[k], rates[d.to], name))
		}
	}
	n.chosen[at] = options[best.winner]
	n.rates[at] = rates[best.winner]
}

// checkRoutes checks the routes between all hosts of a network. It skips a host if no route or
// rule applies to only a part of the covered addresses: packets to all of them then use one
// path, which is already verified.
func (c *cluster) checkRoutes(n *network) {
	for i, h := range c.hosts {
		if !h.splits(n.cover) {
			continue
		}
		for k, m := range n.chosen {
			if k != i && !c.reaches(i, n.chosen[i], m.addr.Addr()) {
				n.gap = fmt.Sprintf("on %s, %s (the address of %s)", h.name, h.describeRouteFrom(n.chosen[i].addr.Addr(), m.addr.Addr()), c.hosts[k].name)
				return
			}
		}
	}
}

// covering returns the longest prefix that contains the chosen addresses, seed, and peer.
func (n *network) covering(seed, peer netip.Addr) netip.Prefix {
	low, high := seed, seed
	extend := func(a netip.Addr) {
		if a.Less(low) {
			low = a
		}
		if high.Less(a) {
			high = a
		}
	}
	extend(peer)
	for _, m := range n.chosen {
		extend(m.addr.Addr())
	}
	cover := netip.PrefixFrom(low, low.BitLen())
	for !cover.Contains(high) {
		cover = netip.PrefixFrom(low, cover.Bits()-1).Masked()
	}
	return cover
}

// peersOf returns the peers whose routes can differ on a host: all others, or one
// representative.
func (n *network) peersOf(at int, h *host, all []netip.Addr) []netip.Addr {
	switch {
	case h.splits(n.cover):
		return slices.Concat(all[:at], all[at+1:])
	case at == 0:
		return all[1:2]
	default:
		return all[:1]
	}
}

// absenceReason explains why a host is not on the network of seed.
func (c *cluster) absenceReason(seed *member, from, at int) string {
	h := c.hosts[at]
	subnet := seed.addr.Masked()
	switch {
	case subnet.IsSingleIP():
		return fmt.Sprintf("%s has no address that %s reaches by %s", h.name, c.hosts[from].name, seed.link.Name)
	case len(c.inSubnet(at, subnet)) == 0:
		return c.missingReason(subnet, at)
	default:
		return fmt.Sprintf("on %s, %s", h.name, h.describeRouteFrom(c.inSubnet(at, subnet)[0].addr.Addr(), seed.addr.Addr()))
	}
}

// missingReason explains why a host has no usable address in a subnet.
func (c *cluster) missingReason(subnet netip.Prefix, at int) string {
	h := c.hosts[at]
	for k := range h.links {
		for _, a := range h.links[k].Addrs {
			if a.Masked() == subnet && c.reasons[at][k] != "" {
				return fmt.Sprintf("%s on %s is unusable: %s", h.links[k].Name, h.name, c.reasons[at][k])
			}
		}
	}
	return fmt.Sprintf("%s has no address in %s", h.name, subnet)
}
