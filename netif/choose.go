package netif

import (
	"cmp"
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
			return Choice{}, fmt.Errorf("choose a network interface on %s: %w", h.name, err)
		}
		return Choice{}, fmt.Errorf("choose a network interface: %w", err)
	}
	return c, nil
}

func (h *host) choose(peers []netip.Addr, req Request) (Choice, error) {
	families, err := req.Family.families()
	if err != nil {
		return Choice{}, err
	}
	var remote []netip.Addr
	for _, p := range peers {
		if !p.IsValid() {
			return Choice{}, errors.New("empty peer address")
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
		return Choice{}, fmt.Errorf("%s is requested, but peer %s has an %s address", families[0], remote[0], f)
	}
	if req.named() != "" {
		return h.chooseNamed(remote, req.scope(f))
	}
	return h.chooseRouted(remote, req.scope(f))
}

// chooseLocal chooses for ranks that are all on this host. If the loopback is unusable, for
// example because it is excluded, it returns the best other interface.
func (h *host) chooseLocal(families []Family, req Request) (Choice, error) {
	if lo := h.loopbackDown(); lo != nil {
		return Choice{}, hints.Errorf(fmt.Sprintf("run `ip link set %s up`", lo.Name),
			"loopback %s is down, so this host cannot reach its own addresses", lo.Name)
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
			failed = cmp.Or(failed, err)
			continue
		}
		reasons := make([]string, len(h.links))
		var loopbacks, others []int
		for i := range h.links {
			l := &h.links[i]
			switch reasons[i] = h.unusableReason(l, s); {
			case reasons[i] != "":
			case l.ARPHRD == arphrdLoopback:
				loopbacks = append(loopbacks, i)
			default:
				others = append(others, i)
			}
		}
		pool, why := loopbacks, "every rank is on this host"
		if len(pool) == 0 {
			pool, why = others, "every rank is on this host, and the loopback is unusable"
		}
		if len(pool) == 0 {
			failed = cmp.Or(failed, fmt.Errorf("no interface has an %s address: this host has %s", f, h.describeAddrs(s)))
			continue
		}
		rates := make([]rating, len(pool))
		for n, i := range pool {
			rates[n] = h.rate(&h.links[i], s)
		}
		best := h.selectLink(pool, rates, reasons)
		l := &h.links[pool[best.winner]]
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

// chooseRouted compares the links that the routes to all peers leave by.
func (h *host) chooseRouted(peers []netip.Addr, s scope) (Choice, error) {
	reasons := make([]string, len(h.links))
	srcs := make([]netip.Prefix, len(h.links)) // source addresses
	var pool []int
	for i := range h.links {
		l := &h.links[i]
		if reasons[i] = h.unusableReason(l, s); reasons[i] != "" {
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
			reasons[i] = h.unreachedReason(l, s.addrs(l)[0].Addr(), peers)
		}
	}
	if len(pool) == 0 {
		return Choice{}, h.unreachableError(peers, s)
	}
	rates := make([]rating, len(pool))
	for n, i := range pool {
		rates[n] = h.rateToward(srcs[i].Addr(), peers[0], &h.links[i], s)
	}
	best := h.selectLink(pool, rates, reasons)
	l, src := &h.links[pool[best.winner]], srcs[pool[best.winner]]
	c := h.choice(l, src, s)
	c.Why = fmt.Sprintf("the route to %s leaves by it", peers[0])
	if len(peers) > 1 {
		c.Why = fmt.Sprintf("the routes to all %d peers leave by it", len(peers))
	}
	if _, rule := h.lookup(src.Addr(), peers[0]); rule.hasSource() {
		c.Why = fmt.Sprintf("packets from %s to %s leave by it (rule %d: from %s, table %d)", src.Addr(), peers[0], rule.Priority, rule.From, rule.Table)
	}
	if !h.carries(l, src.Addr(), peers[0]) {
		c.Why = fmt.Sprintf("packets to %s are sent from its address", peers[0])
	}
	if merit := meritText(best.merits, rates[best.winner]); merit != "" {
		c.Why += "; " + merit
	}
	c.Rejected = h.rejections(reasons, l)
	h.addRouteWarnings(&c, peers)
	return c, nil
}

// unreachedReason describes the first peer to which packets from src, an address of l, do not
// leave by l.
func (h *host) unreachedReason(l *Link, src netip.Addr, peers []netip.Addr) string {
	for _, p := range peers {
		if !h.reaches(l.Name, src, p) {
			return h.describeRouteFrom(src, p)
		}
	}
	return ""
}

// selectLink selects the best link of pool and writes the reasons against the losers to reasons.
func (h *host) selectLink(pool []int, rates []rating, reasons []string) selection {
	best := selectBest(rates)
	for n, i := range pool {
		if d := best.defeats[n]; d.criterion != nil {
			reasons[i] = "also reaches the peers, but " + d.criterion.reasonAgainst(rates[n], rates[d.to], h.links[pool[d.to]].Name)
		}
	}
	return best
}

// unreachableError returns an error that explains why no usable link leads to all peers.
func (h *host) unreachableError(peers []netip.Addr, s scope) error {
	for _, p := range peers {
		paths := h.egressPaths(p)
		if len(paths) == 0 {
			return hints.Errorf("check `ip addr` and `ip route` on this host", "%s; this host has %s", h.describeRoute(p), h.describeAddrs(s))
		}
		if l := h.byName[paths[0].link]; l != nil {
			if reason := h.unusableReason(l, s); reason != "" {
				return hints.Errorf(fmt.Sprintf("repair %s, or use a different network", l.Name), "%s, which is unusable: %s", h.describeRoute(p), reason)
			}
			if addrs := s.addrs(l); len(h.reachAll(l, addrs, []netip.Addr{p})) == 0 {
				return hints.Errorf("check `ip rule` on this host", "%s; this host has %s", h.describeRouteFrom(addrs[0].Addr(), p), h.describeAddrs(s))
			}
		}
	}
	return hints.Errorf("use addresses of the peers on one network", "no single interface reaches all peers: %s, but %s", h.describeRoute(peers[0]), h.describeOtherRoute(peers))
}

// describeOtherRoute describes the route to the first peer that uses a different link from
// peers[0].
func (h *host) describeOtherRoute(peers []netip.Addr) string {
	for _, p := range peers[1:] {
		if h.egressPaths(p)[0] != h.egressPaths(peers[0])[0] {
			return h.describeRoute(p)
		}
	}
	return "the routes differ"
}

// chooseNamed uses the requested interface or returns an error.
func (h *host) chooseNamed(peers []netip.Addr, s scope) (Choice, error) {
	l, err := h.requestedLink(s)
	if err != nil {
		return Choice{}, err
	}
	addrs := s.addrs(l)
	a := addrs[0]
	if len(peers) > 0 {
		a = h.addrToward(peers[0], addrs)
	}
	for _, p := range peers {
		if len(h.egressPaths(p)) == 0 {
			return Choice{}, hints.Errorf("check `ip route` on this host",
				"requested interface %q: %s", l.Name, h.describeRoute(p))
		}
	}
	c := h.choice(l, a, s)
	c.Why = "requested by name"
	c.Rejected = h.rejections(h.reasonsAgainstOthers(l, s), l)
	h.addRouteWarnings(&c, peers)
	return c, nil
}

// requestedLink returns the requested interface after checking that it is usable.
func (h *host) requestedLink(s scope) (*Link, error) {
	l := h.byName[s.named]
	if l == nil {
		return nil, hints.Errorf("use one of "+h.linkNames(), "no interface %q", s.named)
	}
	if reason := h.unusableReason(l, s); reason != "" {
		return nil, hints.Errorf("request a different interface, or \"auto\"; this host has "+h.describeAddrs(scope{family: s.family, local: s.local}),
			"requested interface %q is unusable: %s", s.named, reason)
	}
	return l, nil
}

// reasonsAgainstOthers returns the reasons against every link except the requested one.
func (h *host) reasonsAgainstOthers(requested *Link, s scope) []string {
	reasons := make([]string, len(h.links))
	for i := range h.links {
		reasons[i] = h.unusableReason(&h.links[i], s)
		if reasons[i] == "" {
			reasons[i] = fmt.Sprintf("%s is requested", requested.Name)
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
