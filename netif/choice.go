package netif

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"text/tabwriter"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
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
	if lo := h.loopbackDown(); lo != nil {
		c.Warnings = append(c.Warnings, fmt.Sprintf("loopback %s is down, so ranks on this host cannot reach each other: run `ip link set %s up`", lo.Name, lo.Name))
	}
	return c
}

// A Family is an address family. The empty value means Auto.
type Family string

// The address families. Auto is IPv4 if it works, else IPv6.
const (
	Auto Family = "auto"
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "any family"
}

// has reports whether a belongs to the family.
func (f Family) has(a netip.Addr) bool {
	return f == IPv4 && a.Is4() || f == IPv6 && a.Is6()
}

// defaultPrefix returns the destination of the default route.
func (f Family) defaultPrefix() netip.Prefix {
	if f == IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// families returns the families to try, in order.
func (f Family) families() ([]Family, error) {
	switch f {
	case Auto, "":
		return []Family{IPv4, IPv6}, nil
	case IPv4, IPv6:
		return []Family{f}, nil
	}
	return nil, hints.Errorf("use auto, ipv4, or ipv6", "unknown address family %q", string(f))
}

// familyOf returns the address family that all peers share.
func familyOf(peers []netip.Addr) (Family, error) {
	var f Family
	for _, p := range peers {
		got := IPv4
		if p.Is6() {
			got = IPv6
		}
		if f != "" && f != got {
			return "", fmt.Errorf("peers have different address families: %s and %s", peers[0], p)
		}
		f = got
	}
	return f, nil
}

// Explain writes the choice in human-readable form: a table of the chosen interface and the
// rejected ones with reasons, then the warnings. Its errors come from w.
func (c Choice) Explain(w io.Writer) error {
	var out bytes.Buffer // writes to it cannot fail
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INTERFACE\tUSED\tWHY")
	fmt.Fprintf(table, "%s\tyes\t%s/%d, mtu %d: %s\n", c.Interface, c.Addr, c.Prefix.Bits(), c.MTU, printable.Line(c.Why))
	for _, r := range c.Rejected {
		// An inventory is checked for control characters only in the names of interfaces.
		fmt.Fprintf(table, "%s\tno\t%s\n", r.Interface, printable.Line(r.Reason))
	}
	table.Flush()
	for _, warning := range c.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", printable.Line(warning))
	}
	_, err := w.Write(out.Bytes())
	return err
}
