package netif

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// A scope holds the conditions that a link must meet.
type scope struct {
	family  Family
	named   string   // requested interface; empty to choose
	exclude []string // names of interfaces not to use
	prefer  []string // name prefixes of interfaces to prefer
	local   bool     // every peer is on this host
}

// prefers reports whether the caller prefers this link over others.
func (s scope) prefers(l *Link) bool {
	return slices.ContainsFunc(s.prefer, func(p string) bool { return strings.HasPrefix(l.Name, p) })
}

// unusableReason returns why a link is unusable, whatever the peer, or "" if it is usable.
func (h *host) unusableReason(l *Link, s scope) string {
	loopback := l.ARPHRD == arphrdLoopback
	switch {
	case slices.Contains(s.exclude, l.Name):
		return "excluded"
	case loopback && !s.local && len(s.addrs(l)) == 0:
		return "loopback: reaches this host only"
	case l.Master != "":
		return h.masterReason(l)
	case l.Flags&Up == 0:
		return "administratively down"
	case l.Oper == "lower-layer-down":
		return "the lower link is down"
	case l.Oper == "down" || l.Flags&Running == 0:
		return "no carrier: no cable is connected, or the other end is down"
	case l.Oper != "up" && l.Oper != "unknown":
		return fmt.Sprintf("not ready (%s)", l.Oper)
	case len(s.addrs(l)) == 0:
		return s.addressReason(l)
	}
	return ""
}

func (h *host) masterReason(l *Link) string {
	kind := ""
	if master := h.byName[l.Master]; master != nil {
		kind = master.Kind
	}
	switch kind {
	case "bridge":
		return fmt.Sprintf("port of bridge %s", l.Master)
	case "vrf":
		return fmt.Sprintf("in VRF %s, which has a separate routing table", l.Master)
	}
	return fmt.Sprintf("member of %s, which has the address", l.Master)
}

// addrs returns the usable addresses of a link.
func (s scope) addrs(l *Link) []netip.Prefix {
	var found []netip.Prefix
	for _, a := range l.Addrs {
		ip := a.Addr()
		// Link-local IPv4 addresses are not unique between hosts. Two hosts on one cable may
		// have no other address, so one is usable if the user names its interface.
		linkLocal := s.named == l.Name && ip.Is4() && ip.IsLinkLocalUnicast()
		if s.family.has(ip) && (isUsableAddr(ip) || linkLocal || s.local && ip.IsLoopback()) {
			found = append(found, a)
		}
	}
	return found
}

func (s scope) addressReason(l *Link) string {
	if len(l.Addrs) == 0 {
		return "no address"
	}
	for _, a := range l.Addrs {
		if s.family.has(a.Addr()) && a.Addr().IsLinkLocalUnicast() {
			return fmt.Sprintf("only the link-local address %s, which is not routed", a.Addr())
		}
	}
	a := l.Addrs[0].Addr()
	if a.IsLinkLocalUnicast() {
		return fmt.Sprintf("no %s address, only the link-local %s", s.family, a)
	}
	return fmt.Sprintf("no %s address, only %s", s.family, a)
}

// addrToward picks the address of a link to use for peer: the preferred source of the route,
// else an address in the peer's subnet, else the first.
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

// describeAddrs lists the usable addresses of a host, for messages.
func (h *host) describeAddrs(s scope) string {
	var usable, unusable []string
	for i := range h.links {
		l := &h.links[i]
		if reason := h.unusableReason(l, s); reason != "" {
			if l.ARPHRD != arphrdLoopback {
				unusable = append(unusable, fmt.Sprintf("%s (%s)", l.Name, reason))
			}
			continue
		}
		for _, a := range s.addrs(l) {
			usable = append(usable, fmt.Sprintf("%s (%s)", a, l.Name))
		}
	}
	return inventoryText(usable, unusable)
}

// inventoryText lists the usable addresses of a host, or else its unusable links.
func inventoryText(usable, unusable []string) string {
	switch {
	case len(usable) > 0:
		return format.List(usable, maxListedNames)
	case len(unusable) > 0:
		return "only " + format.List(unusable, maxNames)
	}
	return "no interface except the loopback"
}

// linkNames lists the interfaces of a host, for hints.
func (h *host) linkNames() string {
	var names []string
	for i := range h.links {
		names = append(names, h.links[i].Name)
	}
	return format.List(names, maxListedNames)
}

// isUsableAddr reports whether other hosts can reach a through routing.
func isUsableAddr(a netip.Addr) bool { return a.IsGlobalUnicast() }

// Maximum numbers of names in a message, so that messages about large jobs stay short.
const (
	maxNames       = 3  // in a sentence
	maxListedNames = 12 // in a message that consists mainly of the list
)
