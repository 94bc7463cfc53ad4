package netif

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// noNetworkError returns an error that explains why no network reaches all hosts. It names the
// network that reaches the most hosts, the missing hosts, and their addresses.
func (c *cluster) noNetworkError(nets []*network) error {
	var bare []int
	for i := range c.hosts {
		if len(c.members[i]) == 0 {
			bare = append(bare, i)
		}
	}
	if len(bare) > 0 {
		text := fmt.Sprintf("%s has %s", c.hosts[bare[0]].name, c.describeAddrs(bare[0]))
		if len(bare) > 1 {
			text += fmt.Sprintf("; no usable interface on %s either", c.hostNames(bare[1:]))
		}
		return hints.Errorf(fmt.Sprintf("run `ip -br addr` on %s: each interface is down, is excluded, has no address, or has an address of a different host", c.hosts[bare[0]].name),
			"no %s network: %s", c.scope.family, text)
	}
	for _, n := range nets {
		if len(n.absent) == 0 {
			return hints.Errorf("run `ip route` on each host: packets to the other hosts must leave by this network",
				"no network reaches all %d hosts: %s is on all, but %s", len(c.hosts), n.name, n.gap)
		}
	}
	best := nearest(nets)
	if w := c.widest(); len(w.missing) < len(best.missing) {
		best = w
	}
	if len(best.missing) == len(c.hosts)-1 {
		return hints.Errorf("run `ip -br addr` on both hosts: their interfaces on a common network may be down",
			"no network connects any two of the %d hosts: %s has %s, %s has %s",
			len(c.hosts), c.hosts[0].name, c.describeAddrs(0), c.hosts[1].name, c.describeAddrs(1))
	}
	first := best.missing[0]
	return hints.Errorf(fmt.Sprintf("run `ip -br addr` on %s: its interface on that network may be down, or the host is on a different network", c.hosts[first].name),
		"no network reaches all %d hosts: %s reaches %d of them, but not %s: %s; %s has %s",
		len(c.hosts), best.name, len(c.hosts)-len(best.missing), c.hostNames(best.missing), best.gap, c.hosts[first].name, c.describeAddrs(first))
}

// hostNames formats a list of host names.
func (c *cluster) hostNames(hosts []int) string {
	var names []string
	for _, i := range hosts {
		names = append(names, c.hosts[i].name)
	}
	return format.List(names, maxNames)
}

// An incompleteNetwork is a network that only some hosts are on.
type incompleteNetwork struct {
	name    string
	missing []int
	gap     string // why the first missing host is not on it
}

// nearest returns the network with the fewest missing hosts. If there are several, it
// returns the best. The result always exists because the first host has an address.
func nearest(nets []*network) incompleteNetwork {
	fewest := slices.MinFunc(nets, func(a, b *network) int { return len(a.absent) - len(b.absent) })
	var near []*network
	var rates []rating
	for _, n := range nets {
		if len(n.absent) == len(fewest.absent) {
			near = append(near, n)
			rates = append(rates, n.rating)
		}
	}
	n := near[selectBest(rates).winner]
	return incompleteNetwork{name: n.name, missing: n.absent, gap: n.gap}
}

// widest returns the subnet in which the most hosts have an address. The first host may be
// missing from it.
func (c *cluster) widest() incompleteNetwork {
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
	p := incompleteNetwork{name: best.String()}
	for i := range c.hosts {
		if !slices.Contains(on[best], i) {
			p.missing = append(p.missing, i)
		}
	}
	if len(p.missing) > 0 {
		p.gap = c.missingReason(best, p.missing[0])
	}
	return p
}

// describeAddrs lists the candidate addresses of a host or, if none exist, its unusable links
// with the reasons.
func (c *cluster) describeAddrs(at int) string {
	var usable, unusable []string
	for _, m := range c.members[at] {
		usable = append(usable, fmt.Sprintf("%s (%s)", m.addr, m.link.Name))
	}
	for k := range c.hosts[at].links {
		if l := &c.hosts[at].links[k]; l.ARPHRD != arphrdLoopback && c.reasons[at][k] != "" {
			unusable = append(unusable, fmt.Sprintf("%s (%s)", l.Name, c.reasons[at][k]))
		}
	}
	return inventoryText(usable, unusable)
}
