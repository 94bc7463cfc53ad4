package netif

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// disagreement returns an error that explains why no network reaches all hosts. It names the
// network that reaches the most hosts, the missing hosts, and their addresses.
func (c *cluster) disagreement(nets []*network) error {
	var bare []int
	for i := range c.hosts {
		if len(c.members[i]) == 0 {
			bare = append(bare, i)
		}
	}
	if len(bare) > 0 {
		text := fmt.Sprintf("%s has %s", c.hosts[bare[0]].name, c.has(bare[0]))
		if len(bare) > 1 {
			text += fmt.Sprintf("; nor is there one that works on %s", c.names(bare[1:]))
		}
		return hints.Errorf("run \"ip -br addr\" there: every interface is down, excluded, without an address, or has one that other hosts have too",
			"no %s network: %s", c.scope.family, text)
	}
	for _, n := range nets {
		if len(n.absent) == 0 {
			return hints.Errorf("run \"ip route\" there: each host must send to the others by this network",
				"no network reaches all %d hosts: %s is on all, but %s", len(c.hosts), n.name, n.gap)
		}
	}
	best := nearest(nets)
	if w := c.widest(); len(w.missing) < len(best.missing) {
		best = w
	}
	if len(best.missing) == len(c.hosts)-1 {
		return hints.Errorf("run \"ip -br addr\" on both: their interfaces on a common network may be down",
			"no network reaches all %d hosts, nor any two: %s has %s, %s has %s",
			len(c.hosts), c.hosts[0].name, c.has(0), c.hosts[1].name, c.has(1))
	}
	first := best.missing[0]
	return hints.Errorf(fmt.Sprintf("run \"ip -br addr\" on %s: its interface on that network may be down, or the host is on another one", c.hosts[first].name),
		"no network reaches all %d hosts: %s reaches %d of them, but not %s: %s; %s has %s",
		len(c.hosts), best.name, len(c.hosts)-len(best.missing), c.names(best.missing), best.gap, c.hosts[first].name, c.has(first))
}

// names formats a list of host names.
func (c *cluster) names(hosts []int) string {
	var names []string
	for _, i := range hosts {
		names = append(names, c.hosts[i].name)
	}
	return enumerate(names, fewWords)
}

// A partial is a network that only some hosts are on.
type partial struct {
	name    string
	missing []int
	gap     string // why the first missing host is not on it
}

// nearest returns the network with the fewest missing hosts. If there are several, it
// returns the best. The result always exists because the first host has an address.
func nearest(nets []*network) partial {
	fewest := slices.MinFunc(nets, func(a, b *network) int { return len(a.absent) - len(b.absent) })
	var near []*network
	var rates []rating
	for _, n := range nets {
		if len(n.absent) == len(fewest.absent) {
			near = append(near, n)
			rates = append(rates, n.rating)
		}
	}
	n := near[rank(rates).winner]
	return partial{name: n.name, missing: n.absent, gap: n.gap}
}

// widest returns the subnet in which the most hosts have an address. The first host may be
// missing from it.
func (c *cluster) widest() partial {
	on := make(map[netip.Prefix][]int)
	var order []netip.Prefix
	for i := range c.hosts {
		for _, m := range c.members[i] {
			subnet := m.addr.Masked()
			hosts := on[subnet]
			if hosts == nil {
				order = append(order, subnet)
			}
			if len(hosts) == 0 || hosts[len(hosts)-1] != i {
				on[subnet] = append(hosts, i)
			}
		}
	}
	var best netip.Prefix
	for _, subnet := range order {
		if len(on[subnet]) > len(on[best]) {
			best = subnet
		}
	}
	p := partial{name: best.String()}
	next := 0
	for i := range c.hosts {
		if next < len(on[best]) && on[best][next] == i {
			next++
			continue
		}
		p.missing = append(p.missing, i)
	}
	if len(p.missing) > 0 {
		p.gap = c.lacks(best, p.missing[0])
	}
	return p
}

// has lists the candidate addresses of a host or, if none exist, its unusable links with the
// reasons.
func (c *cluster) has(at int) string {
	var usable, unfit []string
	for _, m := range c.members[at] {
		usable = append(usable, fmt.Sprintf("%s (%s)", m.addr, m.link.Name))
	}
	for k := range c.hosts[at].links {
		if l := &c.hosts[at].links[k]; l.ARPHRD != arphrdLoopback && c.reasons[at][k] != "" {
			unfit = append(unfit, fmt.Sprintf("%s (%s)", l.Name, c.reasons[at][k]))
		}
	}
	return inventoryText(usable, unfit)
}
