package netif

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// scope says for what an interface is being judged.
type scope struct {
	family  Family
	named   string   // the interface that was asked for; empty to choose
	exclude []string // names not to use
	prefer  []string // first letters of names that go before others
	local   bool     // every peer is on this host
}

// prefers says whether the caller wants a link before others.
func (s scope) prefers(l *Link) bool {
	return slices.ContainsFunc(s.prefer, func(p string) bool { return strings.HasPrefix(l.Name, p) })
}

// unfit says why a link cannot serve at all, whoever the peers are; it returns
// "" if it can.
func (h *host) unfit(l *Link, s scope) string {
	loopback := l.ARPHRD == arphrdLoopback
	switch {
	case slices.Contains(s.exclude, l.Name):
		return "excluded on request"
	case loopback && !s.local && len(s.addrs(l)) == 0:
		return "loopback: reaches this host only"
	case l.Master != "":
		return h.unfitPart(l)
	case l.Flags&Up == 0:
		return "switched off"
	case l.Oper == "lower-layer-down":
		return "the link below it is down"
	case l.Oper == "down" || l.Flags&Running == 0:
		return "no carrier: nothing is connected, or the other end is off"
	case l.Oper != "up" && l.Oper != "unknown":
		return fmt.Sprintf("not ready (%s)", l.Oper)
	case len(s.addrs(l)) == 0:
		return s.unfitAddrs(l)
	}
	return ""
}

func (h *host) unfitPart(l *Link) string {
	kind := ""
	if master := h.byName[l.Master]; master != nil {
		kind = master.Kind
	}
	switch kind {
	case "bridge":
		return fmt.Sprintf("port of the bridge %s", l.Master)
	case "vrf":
		return fmt.Sprintf("in the VRF %s, which has a routing table of its own", l.Master)
	}
	return fmt.Sprintf("part of %s, which has the address", l.Master)
}

// addrs lists the addresses of a link that serve as this host's own.
func (s scope) addrs(l *Link) []netip.Prefix {
	var found []netip.Prefix
	for _, a := range l.Addrs {
		ip := a.Addr()
		// Link-local IPv4 is not unique between hosts, but two hosts on one
		// cable may have nothing else: it serves if it was asked for.
		linkLocal := s.named == l.Name && ip.Is4() && ip.IsLinkLocalUnicast()
		if s.family.has(ip) && (isUsableAddr(ip) || linkLocal || s.local && ip.IsLoopback()) {
			found = append(found, a)
		}
	}
	return found
}

func (s scope) unfitAddrs(l *Link) string {
	if len(l.Addrs) == 0 {
		return "no address"
	}
	for _, a := range l.Addrs {
		if s.family.has(a.Addr()) && a.Addr().IsLinkLocalUnicast() {
			return fmt.Sprintf("only the link-local address %s, which no route leads to", a.Addr())
		}
	}
	a := l.Addrs[0].Addr()
	if a.IsLinkLocalUnicast() {
		return fmt.Sprintf("no %s address, only the link-local %s", s.family, a)
	}
	return fmt.Sprintf("no %s address, only %s", s.family, a)
}

// addrToward picks which of a link's addresses to use for peer: the one that
// the route prefers, else one in the peer's subnet, else the first.
func (h *host) addrToward(peer netip.Addr, addrs []netip.Prefix) netip.Prefix {
	routes, _ := h.lookup(netip.Addr{}, peer)
	for _, r := range routes {
		for _, a := range addrs {
			if r.Src == a.Addr() {
				return a
			}
		}
	}
	for _, a := range addrs {
		if a.Contains(peer) {
			return a
		}
	}
	return addrs[0]
}

// has lists the addresses of a host that could serve, for messages.
func (h *host) has(s scope) string {
	var usable, unfit []string
	for i := range h.links {
		l := &h.links[i]
		if reason := h.unfit(l, s); reason != "" {
			if l.ARPHRD != arphrdLoopback {
				unfit = append(unfit, fmt.Sprintf("%s (%s)", l.Name, reason))
			}
			continue
		}
		for _, a := range s.addrs(l) {
			usable = append(usable, fmt.Sprintf("%s (%s)", a, l.Name))
		}
	}
	return inventoryText(usable, unfit)
}

// inventoryText says what a host has: usable addresses, else what it cannot use.
func inventoryText(usable, unfit []string) string {
	switch {
	case len(usable) > 0:
		return enumerate(usable, manyWords)
	case len(unfit) > 0:
		return "only " + enumerate(unfit, fewWords)
	}
	return "no interface but the loopback"
}

// names lists the interfaces of a host, for hints.
func (h *host) names() string {
	var names []string
	for i := range h.links {
		names = append(names, h.links[i].Name)
	}
	return enumerate(names, manyWords)
}
