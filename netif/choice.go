package netif

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A Request holds the user's constraints on the choice.
type Request struct {
	Interface string   // interface to use; "" or "auto" selects one
	Family    Family   // "" or Auto: IPv4 if it works, else IPv6
	Exclude   []string // names of interfaces not to use
	Prefer    []string // name prefixes of interfaces to prefer if they are usable
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

// Values of Choice.Source.
const (
	SourceAuto = "auto" // selected by this package
	SourceSpec = "spec" // named by the user
)

// A Choice is the interface and address that a host uses, with the reason.
type Choice struct {
	Interface string       `json:"interface"`
	Index     int          `json:"index"`
	Addr      netip.Addr   `json:"addr"`     // address to bind and to send to the peers
	Prefix    netip.Prefix `json:"prefix"`   // subnet of Addr
	Family    Family       `json:"family"`   // IPv4 or IPv6
	MTU       int          `json:"mtu"`      // bytes, of the link that packets leave by
	Source    string       `json:"source"`   // SourceAuto or SourceSpec
	Why       string       `json:"why"`      // reason, one line
	Shadowed  bool         `json:"shadowed"` // the interface has an earlier address of this family; programs that get only its name use that address
	Rejected  []Rejection  `json:"rejected"` // every other interface, by index
	Warnings  []string     `json:"warnings"` // problems that may still occur
}

// A Rejection is an interface that was not chosen, with the reason.
type Rejection struct {
	Interface string `json:"interface"`
	Reason    string `json:"reason"`
}

// choice fills in the fields that follow from the link and the address.
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

// warnWays adds warnings about the routes to the peers. It corrects the MTU if packets leave
// by other links.
func (h *host) warnWays(c *Choice, peers []netip.Addr) {
	var carriers []string
	astray, strayed := netip.Addr{}, 0
	var lost netip.Addr // first peer that only a rule for the address leads to
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

// asymmetric returns a warning that a socket without a bound address sends by a different
// interface from the one that it receives on.
func (h *host) asymmetric(c *Choice, peer netip.Addr, peers int) string {
	routes, _ := h.lookup(netip.Addr{}, peer)
	leaves := h.ways(peer)[0].dev
	text := fmt.Sprintf("asymmetric route: packets to %s", peer)
	if peers > 1 {
		text += fmt.Sprintf(" and %d more peers", peers-1)
	}
	// A source address has no effect without a rule for it.
	if bound := h.waysFrom(c.Addr, peer); len(bound) > 0 && bound[0].dev == c.Interface {
		return text + fmt.Sprintf(" leave by %s unless the socket is bound to %s, as the routing rules have it", leaves, c.Addr)
	}
	text += fmt.Sprintf(" leave by %s unless the socket is bound to the device %s", leaves, c.Interface)
	if slices.ContainsFunc(routes, func(r Route) bool { return r.Dev == c.Interface }) {
		return text + fmt.Sprintf("; both interfaces have a route to %s: give each its own subnet, raise the metric of %s, or add a rule for its address (ip rule add from %s table N)", routes[0].Dst, leaves, c.Addr)
	}
	return text + fmt.Sprintf("; the route to %s is on %s", routes[0].Dst, leaves)
}

// meritText describes why a winner was preferred. It returns "" without such a reason.
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
