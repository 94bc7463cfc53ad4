package netif

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Choose picks the interface and address that a host uses to reach peers, the addresses of the
// other hosts. It skips the host's own addresses. It returns the loopback if no other host
// remains.
//
// If the request names an interface, Choose uses it or returns an error; it does not fall back
// to a different one. Errors may have a Hint method that returns the fix.
func Choose(inv Inventory, peers []netip.Addr, req Request) (Choice, error) {
	h := newHost(&inv, inv.Host)
	c, err := h.choose(peers, req)
	if err != nil {
		if h.name != "" {
			return Choice{}, fmt.Errorf("choosing a network interface on %s: %w", h.name, err)
		}
		return Choice{}, fmt.Errorf("choosing a network interface: %w", err)
	}
	return c, nil
}

func (h *host) choose(peers []netip.Addr, req Request) (Choice, error) {
	families, err := req.Family.tries()
	if err != nil {
		return Choice{}, err
	}
	var remote []netip.Addr
	for _, p := range peers {
		if !p.IsValid() {
			return Choice{}, errors.New("a peer has no address")
		}
		if p = p.Unmap(); !h.isLocal(p) {
			remote = append(remote, p)
		}
	}
	if len(remote) == 0 {
		return h.chooseLocal(families, req)
	}
	f, err := familyOf(remote)
	if err != nil {
		return Choice{}, err
	}
	if len(families) == 1 && families[0] != f {
		return Choice{}, fmt.Errorf("%s was asked for, but the peer %s has %s", families[0], remote[0], f)
	}
	if req.named() != "" {
		return h.chooseNamed(remote, req.scope(f))
	}
	return h.chooseRouted(remote, req.scope(f))
}

// chooseLocal chooses for ranks that are all on this host. If the loopback is unusable, for
// example because it is excluded, it returns the best other interface.
func (h *host) chooseLocal(families []Family, req Request) (Choice, error) {
	if lo := h.darkLoopback(); lo != nil {
		return Choice{}, hints.Errorf(fmt.Sprintf("switch it on: ip link set %s up", lo.Name),
			"the loopback %s is switched off, and without it this host cannot reach any address of its own", lo.Name)
	}
	var failed error
	for _, f := range families {
		s := req.scope(f)
		s.local = true
		if s.named != "" {
			c, err := h.chooseNamed(nil, s)
			if err == nil {
				return c, nil
			}
			failed = firstError(failed, err)
			continue
		}
		reasons := make([]string, len(h.links))
		var loopbacks, others []int
		for i := range h.links {
			l := &h.links[i]
			switch reasons[i] = h.unfit(l, s); {
			case reasons[i] != "":
			case l.ARPHRD == arphrdLoopback:
				loopbacks = append(loopbacks, i)
			default:
				others = append(others, i)
			}
		}
		pool, why := loopbacks, "every rank is on this host"
		if len(pool) == 0 {
			pool, why = others, "every rank is on this host, and the loopback cannot be used"
		}
		if len(pool) == 0 {
			failed = firstError(failed, fmt.Errorf("no interface has an %s address, not even the loopback: this host has %s", f, h.has(s)))
			continue
		}
		rates := make([]rating, len(pool))
		for n, i := range pool {
			rates[n] = h.rate(&h.links[i], s)
		}
		won := h.rankLinks(pool, rates, reasons)
		l := &h.links[pool[won.winner]]
		for _, i := range others {
			if len(loopbacks) > 0 {
				reasons[i] = "not needed: every rank is on this host"
			}
		}
		c := h.choice(l, s.addrs(l)[0], s)
		c.Why = why
		c.Rejected = h.rejections(reasons, l)
		return c, nil
	}
	return Choice{}, failed
}

// chooseRouted ranks the links that the routes to all peers leave by.
func (h *host) chooseRouted(peers []netip.Addr, s scope) (Choice, error) {
	reasons := make([]string, len(h.links))
	srcs := make([]netip.Prefix, len(h.links)) // source addresses
	var pool []int
	for i := range h.links {
		l := &h.links[i]
		if reasons[i] = h.unfit(l, s); reasons[i] != "" {
			continue
		}
		serving := h.reachAll(l, s.addrs(l), peers)
		switch {
		case len(serving) > 0:
			pool = append(pool, i)
			srcs[i] = h.addrToward(peers[0], serving)
		case l.ARPHRD == arphrdLoopback:
			reasons[i] = "loopback: reaches this host only"
		default:
			reasons[i] = h.whyNot(l, s.addrs(l)[0].Addr(), peers)
		}
	}
	if len(pool) == 0 {
		return Choice{}, h.noWay(peers, s)
	}
	rates := make([]rating, len(pool))
	for n, i := range pool {
		rates[n] = h.rateToward(srcs[i].Addr(), peers[0], &h.links[i], s)
	}
	won := h.rankLinks(pool, rates, reasons)
	l, src := &h.links[pool[won.winner]], srcs[pool[won.winner]]
	c := h.choice(l, src, s)
	c.Why = fmt.Sprintf("the route to %s leaves by it", peers[0])
	if len(peers) > 1 {
		c.Why = fmt.Sprintf("the routes to all %d peers leave by it", len(peers))
	}
	if _, rule := h.lookup(src.Addr(), peers[0]); rule.isSourced() {
		c.Why = fmt.Sprintf("packets from %s to %s leave by it (rule %d: from %s, table %d)", src.Addr(), peers[0], rule.Priority, rule.From, rule.Table)
	}
	if !h.carries(l, src.Addr(), peers[0]) {
		c.Why = fmt.Sprintf("packets to %s are sent from its address", peers[0])
	}
	if merit := meritText(won.merits, rates[won.winner]); merit != "" {
		c.Why += "; " + merit
	}
	c.Rejected = h.rejections(reasons, l)
	h.warnWays(&c, peers)
	return c, nil
}

// whyNot describes the first peer to which packets from src, an address of l, do not leave by
// l.
func (h *host) whyNot(l *Link, src netip.Addr, peers []netip.Addr) string {
	for _, p := range peers {
		if !h.reaches(l.Name, src, p) {
			return h.wayFrom(src, p)
		}
	}
	return ""
}

// rankLinks ranks the links of pool and writes the reasons against the losers to reasons.
func (h *host) rankLinks(pool []int, rates []rating, reasons []string) ranking {
	won := rank(rates)
	for n, i := range pool {
		if d := won.defeats[n]; d.criterion != nil {
			reasons[i] = "reaches the peers too, but " + d.criterion.blame(rates[n], rates[d.to], h.links[pool[d.to]].Name)
		}
	}
	return won
}

// noWay returns an error that explains why no usable link leads to all peers.
func (h *host) noWay(peers []netip.Addr, s scope) error {
	for _, p := range peers {
		ways := h.ways(p)
		if len(ways) == 0 {
			return hints.Errorf("check the addresses and routes of this host: ip addr, ip route", "%s; this host has %s", h.wayTo(p), h.has(s))
		}
		if l := h.byName[ways[0].link]; l != nil {
			if reason := h.unfit(l, s); reason != "" {
				return hints.Errorf(fmt.Sprintf("repair %s, or use a network that works", l.Name), "%s, which cannot be used: %s", h.wayTo(p), reason)
			}
			if addrs := s.addrs(l); len(h.reachAll(l, addrs, []netip.Addr{p})) == 0 {
				return hints.Errorf("check the rules of this host: ip rule", "%s; this host has %s", h.wayFrom(addrs[0].Addr(), p), h.has(s))
			}
		}
	}
	return hints.Errorf("give the peers' addresses on one network", "no one interface reaches all peers: %s, but %s", h.wayTo(peers[0]), h.otherWay(peers))
}

// otherWay describes the route to the first peer that uses a different link from peers[0].
func (h *host) otherWay(peers []netip.Addr) string {
	for _, p := range peers[1:] {
		if h.ways(p)[0] != h.ways(peers[0])[0] {
			return h.wayTo(p)
		}
	}
	return "the routes differ"
}

// chooseNamed uses the requested interface or returns an error.
func (h *host) chooseNamed(peers []netip.Addr, s scope) (Choice, error) {
	l, err := h.asked(s)
	if err != nil {
		return Choice{}, err
	}
	addrs := s.addrs(l)
	a := addrs[0]
	if len(peers) > 0 {
		a = h.addrToward(peers[0], addrs)
	}
	for _, p := range peers {
		if len(h.ways(p)) == 0 {
			return Choice{}, hints.Errorf("check the routes of this host: ip route",
				"interface %q was asked for, but %s", l.Name, h.wayTo(p))
		}
	}
	c := h.choice(l, a, s)
	c.Why = "asked for by name"
	c.Rejected = h.rejections(h.unasked(l, s), l)
	h.warnWays(&c, peers)
	return c, nil
}

// asked returns the requested interface after checking that it is usable.
func (h *host) asked(s scope) (*Link, error) {
	l := h.byName[s.named]
	if l == nil {
		return nil, hints.Errorf("this host has "+h.names(), "interface %q was asked for, but there is none of this name", s.named)
	}
	if reason := h.unfit(l, s); reason != "" {
		return nil, hints.Errorf("name one that works, or \"auto\"; this host has "+h.has(scope{family: s.family, local: s.local}),
			"interface %q was asked for, but cannot be used: %s", s.named, reason)
	}
	return l, nil
}

// unasked returns the reasons against every link except the requested one.
func (h *host) unasked(asked *Link, s scope) []string {
	reasons := make([]string, len(h.links))
	for i := range h.links {
		reasons[i] = h.unfit(&h.links[i], s)
		if reasons[i] == "" {
			reasons[i] = fmt.Sprintf("%s was asked for", asked.Name)
		}
	}
	return reasons
}

// rejections returns every link except the chosen one, with the reason against it.
func (h *host) rejections(reasons []string, chosen *Link) []Rejection {
	out := make([]Rejection, 0, len(h.links))
	for i := range h.links {
		if l := &h.links[i]; l != chosen {
			out = append(out, Rejection{Interface: l.Name, Reason: reasons[i]})
		}
	}
	return out
}

// firstError returns the first error, which belongs to the preferred family.
func firstError(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
