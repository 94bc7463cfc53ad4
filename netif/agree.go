package netif

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Agree picks one network for all nodes, the inventories of a job's hosts. It returns each
// host's choice in the order of nodes. The hosts agree on a network, not on a name: the
// interface may have a different name on each host.
//
// A network connects all hosts if each host has an address on it and its routes to the other
// addresses leave by it. The addresses can be in different subnets. A single host gets the
// loopback, as from [Choose]. If no such network exists, the error names the hosts that are
// not on the best candidate and lists their addresses. Errors may have a Hint method that
// returns the fix.
func Agree(nodes []Inventory, req Request) ([]Choice, error) {
	switch len(nodes) {
	case 0:
		return nil, errors.New("choose a common network: no hosts")
	case 1:
		c, err := Choose(nodes[0], nil, req)
		if err != nil {
			return nil, err
		}
		return []Choice{c}, nil
	}
	hosts := make([]*host, len(nodes))
	seen := make(map[string]bool, len(nodes))
	for i := range nodes {
		name := nodes[i].Host
		if name == "" {
			name = fmt.Sprintf("host %d", i)
		}
		if seen[name] {
			return nil, fmt.Errorf("choose a common network: duplicate host %q", name)
		}
		seen[name] = true
		hosts[i] = newHost(&nodes[i], name)
	}
	families, err := req.Family.families()
	if err != nil {
		return nil, fmt.Errorf("choose a common network: %w", err)
	}
	var failed error
	absent := false // no host has an address of the family that failed
	for _, f := range families {
		c := newCluster(hosts, req.scope(f))
		choices, err := c.agree()
		if err == nil {
			return choices, nil
		}
		if failed == nil || absent && !c.isEmpty() {
			failed = err
		}
		absent = c.isEmpty()
	}
	return nil, fmt.Errorf("choose a common network: %w", failed)
}

// A cluster is a set of hosts, evaluated for one address family.
type cluster struct {
	hosts   []*host
	scope   scope
	shared  map[netip.Addr][]int // addresses that several hosts have, with the indices of those hosts
	members [][]*member          // by host: candidate addresses
	reasons [][]string           // by host and link: why the link is not a candidate, or ""
}

// A member is a usable address of a host.
type member struct {
	link *Link
	addr netip.Prefix
}

func newCluster(hosts []*host, s scope) *cluster {
	c := &cluster{
		hosts:   hosts,
		scope:   s,
		shared:  sharedAddrs(hosts),
		members: make([][]*member, len(hosts)),
		reasons: make([][]string, len(hosts)),
	}
	for i, h := range hosts {
		c.reasons[i] = make([]string, len(h.links))
		for k := range h.links {
			l := &h.links[k]
			reason := h.unusableReason(l, s)
			if slices.Contains(s.exclude, l.Name) || l.ARPHRD == arphrdLoopback && reason != "" {
				c.reasons[i][k] = reason
				continue
			}
			// A duplicate address is a more useful reason than a link that is currently down.
			if duplicate := c.duplicateReason(i, l); duplicate != "" {
				reason = duplicate
			}
			if reason == "" && s.named != "" && s.named != l.Name {
				reason = fmt.Sprintf("%s is requested", s.named)
			}
			if c.reasons[i][k] = reason; reason != "" {
				continue
			}
			for _, a := range s.addrs(l) {
				if c.shared[a.Addr()] == nil {
					c.members[i] = append(c.members[i], &member{link: l, addr: a})
				}
			}
		}
	}
	return c
}

// isEmpty reports whether no host has a candidate address.
func (c *cluster) isEmpty() bool {
	return !slices.ContainsFunc(c.members, func(ms []*member) bool { return len(ms) > 0 })
}

// sharedAddrs returns the addresses that several hosts have, on links that are up or down. A
// host never sends packets for its own address to another host.
func sharedAddrs(hosts []*host) map[netip.Addr][]int {
	first := make(map[netip.Addr]int)
	shared := make(map[netip.Addr][]int)
	for i, h := range hosts {
		for a := range h.owner {
			if !isUsableAddr(a) && !a.IsLinkLocalUnicast() {
				continue
			}
			switch at, ok := first[a]; {
			case !ok:
				first[a] = i
			case shared[a] == nil:
				shared[a] = []int{at, i}
			default:
				shared[a] = append(shared[a], i)
			}
		}
	}
	return shared
}

// duplicateReason returns why a link is unusable if other hosts have all of its addresses.
// Otherwise it returns "".
func (c *cluster) duplicateReason(at int, l *Link) string {
	addrs := c.scope.addrs(l)
	for _, a := range addrs {
		if c.shared[a.Addr()] == nil {
			return ""
		}
	}
	if len(addrs) == 0 {
		return ""
	}
	var others []string
	for _, i := range c.shared[addrs[0].Addr()] {
		if i != at {
			others = append(others, c.hosts[i].name)
		}
	}
	return fmt.Sprintf("%s is also an address of %s, so it does not lead to another host", addrs[0].Addr(), format.List(others, maxNames))
}

func (c *cluster) agree() ([]Choice, error) {
	if c.scope.named != "" {
		if err := c.checkNamed(); err != nil {
			return nil, err
		}
	}
	nets := c.networks()
	var complete []*network
	var rates []rating
	for _, n := range nets {
		if n.gap == "" {
			complete = append(complete, n)
			rates = append(rates, n.rating)
		}
	}
	if len(complete) == 0 {
		return nil, c.noNetworkError(nets)
	}
	best := selectBest(rates)
	winner := complete[best.winner]
	for k, n := range complete {
		if d := best.defeats[k]; d.criterion != nil {
			n.beaten = func(host int) string {
				return d.criterion.reasonAgainst(rates[k], rates[d.to], complete[d.to].chosen[host].link.Name)
			}
		}
	}
	return c.choices(winner, nets, c.describeChoice(winner, len(complete), best.merits)), nil
}

// checkNamed checks that the requested interface is usable on every host.
func (c *cluster) checkNamed() error {
	for i, h := range c.hosts {
		if l := h.byName[c.scope.named]; l != nil {
			if duplicate := c.duplicateReason(i, l); duplicate != "" {
				return hints.Errorf("request an interface with a different address on each host, or \"auto\"",
					"%s: requested interface %q: %s", h.name, l.Name, duplicate)
			}
		}
		if _, err := h.requestedLink(c.scope); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	return nil
}

// describeChoice explains in one line why the winner was chosen.
func (c *cluster) describeChoice(winner *network, rivals int, merits []*criterion) string {
	switch merit := meritText(merits, winner.rating); {
	case c.scope.named != "":
		return "requested by name"
	case rivals == 1:
		return fmt.Sprintf("%s is the only network that reaches all %d hosts", winner.name, len(c.hosts))
	case merit != "":
		return fmt.Sprintf("%s reaches all %d hosts; %s", winner.name, len(c.hosts), merit)
	default:
		return fmt.Sprintf("%s reaches all %d hosts", winner.name, len(c.hosts))
	}
}

// choices returns each host's choice on the winning network.
func (c *cluster) choices(winner *network, nets []*network, why string) []Choice {
	common := slices.Concat(c.missedWarnings(winner, nets), c.nearMissWarnings(winner, nets), c.mtuWarning(winner))
	all := make([]netip.Addr, len(c.hosts))
	for i, m := range winner.chosen {
		all[i] = m.addr.Addr()
	}
	out := make([]Choice, len(c.hosts))
	for i, h := range c.hosts {
		m := winner.chosen[i]
		choice := h.choice(m.link, m.addr, c.scope)
		choice.Why = why
		choice.Rejected = h.rejections(c.explained(i, winner, nets), m.link)
		h.addRouteWarnings(&choice, winner.peersOf(i, h, all))
		choice.Warnings = append(choice.Warnings, common...)
		out[i] = choice
	}
	return out
}

// explained returns the reasons against each link of a host, by link.
func (c *cluster) explained(at int, winner *network, nets []*network) []string {
	reasons := slices.Clone(c.reasons[at])
	explain := func(m *member, reason string) {
		for k := range c.hosts[at].links {
			if &c.hosts[at].links[k] == m.link && reasons[k] == "" {
				reasons[k] = reason
			}
		}
	}
	for _, m := range winner.options[at] {
		explain(m, winner.lost[m])
	}
	used := winner.chosen[at]
	for _, m := range c.inSubnet(at, used.addr.Masked()) {
		explain(m, fmt.Sprintf("on the same network as %s, which the route uses", used.link.Name))
	}
	for _, n := range nets {
		for _, m := range n.options[at] {
			switch {
			case n.gap != "":
				explain(m, fmt.Sprintf("%s does not reach every host: %s", n.name, n.gap))
			case n.beaten != nil:
				explain(m, fmt.Sprintf("%s also reaches every host, but %s", n.name, n.beaten(at)))
			}
		}
	}
	for _, m := range c.members[at] { // without a reason, m shares no network with the first two hosts
		explain(m, fmt.Sprintf("%s does not reach %s", m.addr.Masked(), c.hosts[0].name))
	}
	return reasons
}
