package netif

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Request is what the user asks of the choice.
type Request struct {
	Interface string   // "" or "auto" to choose; else the name of the one to use
	Family    Family   // "" or Auto: IPv4 where it works, else IPv6
	Exclude   []string // names of interfaces not to use
	Prefer    []string // first letters of the names of interfaces that go before others, where they are usable
}

func (r Request) named() string {
	if r.Interface == "auto" {
		return ""
	}
	return r.Interface
}

func (r Request) scope(f Family) scope {
	return scope{family: f, named: r.named(), exclude: r.Exclude, prefer: r.Prefer}
}

// Who made a choice.
const (
	SourceAuto = "auto" // this package
	SourceSpec = "spec" // the user, by name
)

// Choice is the interface and address that a host uses, and why.
type Choice struct {
	Interface string       `json:"interface"`
	Index     int          `json:"index"`
	Addr      netip.Addr   `json:"addr"`     // the address to bind and to tell the peers
	Prefix    netip.Prefix `json:"prefix"`   // the subnet of Addr
	Family    Family       `json:"family"`   // IPv4 or IPv6
	MTU       int          `json:"mtu"`      // bytes, of the link that packets leave by
	Source    string       `json:"source"`   // SourceAuto or SourceSpec
	Why       string       `json:"why"`      // one line
	Shadowed  bool         `json:"shadowed"` // the interface has an earlier address of this family: programs told its name take that one
	Rejected  []Rejection  `json:"rejected"` // every other interface, by index
	Warnings  []string     `json:"warnings"` // what may go wrong all the same
}

// Rejection says why an interface was not chosen.
type Rejection struct {
	Interface string `json:"interface"`
	Reason    string `json:"reason"`
}

// choice fills in what follows from the link and the address.
func (h *host) choice(l *Link, a netip.Prefix, s scope) Choice {
	c := Choice{
		Interface: l.Name,
		Index:     l.Index,
		Addr:      a.Addr(),
		Prefix:    a.Masked(),
		Family:    s.family,
		MTU:       l.MTU,
		Source:    SourceAuto,
		Rejected:  []Rejection{},
		Warnings:  []string{},
	}
	if s.named != "" {
		c.Source = SourceSpec
	}
	first := slices.IndexFunc(l.Addrs, func(a netip.Prefix) bool { return s.family.has(a.Addr()) })
	c.Shadowed = l.Addrs[first].Addr() != c.Addr
	if lo := h.darkLoopback(); lo != nil {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s is switched off, so ranks on this host cannot reach each other: ip link set %s up", lo.Name, lo.Name))
	}
	return c
}

// warnWays adds what the routes to the peers make doubtful about a choice, and
// corrects its MTU if packets leave by other links.
func (h *host) warnWays(c *Choice, peers []netip.Addr) {
	var carriers []string
	astray, strayed := netip.Addr{}, 0
	var lost netip.Addr // the first peer that only a rule for the address leads to
	for _, p := range peers {
		ways, bound := h.ways(p), h.waysFrom(c.Addr, p)
		if len(ways) == 0 && len(bound) > 0 && !lost.IsValid() {
			lost = p
		}
		if len(ways) > 0 && ways[0].link != c.Interface {
			if strayed++; strayed == 1 {
				astray = p
			}
			continue
		}
		for _, w := range bound {
			if w.link == c.Interface && w.dev != c.Interface && !slices.Contains(carriers, w.dev) {
				carriers = append(carriers, w.dev)
			}
		}
	}
	if lost.IsValid() {
		c.Warnings = append(c.Warnings, fmt.Sprintf("packets to %s find no route unless the socket is bound to %s, as the routing rules have it", lost, c.Addr))
	}
	if strayed > 0 {
		c.Warnings = append(c.Warnings, h.asymmetric(c, astray, strayed))
	}
	if len(carriers) > 0 {
		c.MTU = h.byName[carriers[0]].MTU
		for _, dev := range carriers[1:] {
			c.MTU = min(c.MTU, h.byName[dev].MTU)
		}
		text := fmt.Sprintf("%s is on %s, and its packets leave by %s", c.Addr, c.Interface, enumerate(carriers, fewWords))
		if c.Shadowed {
			text += fmt.Sprintf("; a program that is told the name %s and not the address takes another one", c.Interface)
		}
		c.Warnings = append(c.Warnings, text)
	}
}

// asymmetric warns that a socket which is not bound to the chosen address sends
// by another interface than it receives on.
func (h *host) asymmetric(c *Choice, peer netip.Addr, peers int) string {
	routes, _ := h.lookup(netip.Addr{}, peer)
	leaves := h.ways(peer)[0].dev
	text := fmt.Sprintf("asymmetric route: packets to %s", peer)
	if peers > 1 {
		text += fmt.Sprintf(" and %d more peers", peers-1)
	}
	// A source address alone changes nothing, but by a rule for it.
	if bound := h.waysFrom(c.Addr, peer); len(bound) > 0 && bound[0].dev == c.Interface {
		return text + fmt.Sprintf(" leave by %s unless the socket is bound to %s, as the routing rules have it", leaves, c.Addr)
	}
	text += fmt.Sprintf(" leave by %s unless the socket is bound to the device %s", leaves, c.Interface)
	if slices.ContainsFunc(routes, func(r Route) bool { return r.Dev == c.Interface }) {
		return text + fmt.Sprintf("; both interfaces have a route to %s: give each its own subnet, raise the metric of %s, or add a rule for its address (ip rule add from %s table N)", routes[0].Dst, leaves, c.Addr)
	}
	return text + fmt.Sprintf("; the route to %s is on %s", routes[0].Dst, leaves)
}

// meritText puts what set a winner apart in words; "" if nothing did.
func meritText(merits []*criterion, r rating) string {
	if len(merits) == 0 {
		return ""
	}
	words := make([]string, len(merits))
	for i, m := range merits {
		words[i] = m.praise(r)
	}
	return "preferred for " + strings.Join(words, ", ")
}
