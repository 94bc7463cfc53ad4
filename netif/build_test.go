package netif

import (
	"fmt"
	"net/netip"
	"testing"
)

// A hostSpec builds an inventory.
type hostSpec struct{ inv Inventory }

// newHostSpec returns a host with a loopback.
func newHostSpec(name string) *hostSpec {
	b := &hostSpec{inv: Inventory{Host: name}}
	b.link(Link{Name: "lo", ARPHRD: "loopback", Oper: "unknown", MTU: 65536}, "127.0.0.1/8", "::1/128")
	return b
}

// link adds a link and the routes to its subnets. The link is up unless l sets a different
// state.
func (b *hostSpec) link(l Link, addrs ...string) *hostSpec {
	if l.Index == 0 {
		l.Index = len(b.inv.Links) + 1
	}
	if l.ARPHRD == "" {
		l.ARPHRD = "ether"
	}
	if l.Oper == "" {
		l.Oper = "up"
	}
	if l.Oper == "up" || l.Oper == "unknown" {
		l.Flags |= Up | Running
	}
	if l.MTU == 0 {
		l.MTU = 1500
	}
	if l.Speed == 0 {
		l.Speed = -1
	}
	for _, text := range addrs {
		a := mustPrefix(text)
		l.Addrs = append(l.Addrs, a)
		if l.Flags&Up != 0 && !a.IsSingleIP() && isUsableAddr(a.Addr()) {
			b.inv.Routes = append(b.inv.Routes, Route{Dst: a.Masked(), Dev: l.Name, Src: a.Addr()})
		}
	}
	b.inv.Links = append(b.inv.Links, l)
	return b
}

// route adds a route; an empty dev drops packets.
func (b *hostSpec) route(dst, dev, via, src string) *hostSpec {
	r := Route{Dst: mustPrefix(dst), Dev: dev}
	if via != "" {
		r.Via = addr(via)
	}
	if src != "" {
		r.Src = addr(src)
	}
	b.inv.Routes = append(b.inv.Routes, r)
	return b
}

// done validates the inventory and returns it.
func (b *hostSpec) done(t testing.TB) Inventory {
	t.Helper()
	if err := b.inv.validate(); err != nil {
		t.Fatal(err)
	}
	return b.inv
}

// slurmHost is a node with a management network, a fast network, and Docker's bridge. All are
// virtual, so only the MTU distinguishes the two networks.
func slurmHost(i int) *hostSpec {
	return newHostSpec(fmt.Sprintf("n%d", i)).
		link(Link{Name: "eth0", Kind: "veth", Speed: 10000}, fmt.Sprintf("10.10.%d.%d/16", i/250, i%250+1)).
		link(Link{Name: "hsn0", Kind: "veth", Speed: 10000, MTU: 9000}, fmt.Sprintf("10.20.%d.%d/16", i/250, i%250+1)).
		link(Link{Name: "docker0", Kind: "bridge", Oper: "down", Flags: Up}, "172.17.0.1/16").
		route("0.0.0.0/0", "eth0", "10.10.255.254", "")
}

func slurmHosts(t testing.TB, n int) []Inventory {
	t.Helper()
	var nodes []Inventory
	for i := range n {
		nodes = append(nodes, slurmHost(i).done(t))
	}
	return nodes
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func mustPrefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func addrs(texts []string) []netip.Addr {
	var as []netip.Addr
	for _, text := range texts {
		as = append(as, addr(text))
	}
	return as
}

func (b *hostSpec) routeMetric(dst, dev, via string, metric int) *hostSpec {
	b.route(dst, dev, via, "")
	b.inv.Routes[len(b.inv.Routes)-1].Metric = metric
	return b
}

// unlisted removes all routes, as in a hand-written inventory.
func unlisted(b *hostSpec) *hostSpec {
	b.inv.Routes = nil
	return b
}

// onlyDefault removes all routes except the last.
func onlyDefault(b *hostSpec) *hostSpec {
	b.inv.Routes = b.inv.Routes[len(b.inv.Routes)-1:]
	return b
}

func noLinks(name string) *hostSpec { return &hostSpec{inv: Inventory{Host: name}} }

// cloudHost has one address per network and no subnet, as on GCP.
func cloudHost(i int) *hostSpec {
	return newHostSpec(fmt.Sprintf("vm%d", i)).
		link(Link{Name: "eth0", Driver: "gve", PCI: "0000:00:0c.0"}, fmt.Sprintf("10.10.%d.%d/32", i/250, i%250)).
		link(Link{Name: "eth1", Driver: "gve", PCI: "0000:06:00.0", MTU: 8244}, fmt.Sprintf("10.11.%d.%d/32", i/250, i%250)).
		route("10.10.255.1/32", "eth0", "", "").route("0.0.0.0/0", "eth0", "10.10.255.1", "").
		route("10.11.255.1/32", "eth1", "", "").route("10.11.0.0/16", "eth1", "10.11.255.1", "")
}

// rackHost is on a fabric where each rack has its own subnet.
func rackHost(rack, i int) *hostSpec {
	return newHostSpec(fmt.Sprintf("r%dn%d", rack, i)).
		link(Link{Name: "eth0", Speed: 1000}, fmt.Sprintf("10.0.%d.%d/16", rack, i)).
		link(Link{Name: "hsn0", Speed: 100000}, fmt.Sprintf("10.1.%d.%d/24", rack, i)).
		route("0.0.0.0/0", "eth0", "10.0.255.254", "").
		route("10.1.0.0/16", "hsn0", fmt.Sprintf("10.1.%d.254", rack), "")
}

// bgpHost has its address on lo and reaches the others over two links without addresses.
func bgpHost(name, own string) *hostSpec {
	b := newHostSpec(name)
	b.inv.Links[0].Addrs = append(b.inv.Links[0].Addrs, mustPrefix(own+"/32"))
	return b.link(Link{Name: "lan0", Speed: 100000, MTU: 9000}, "fe80::a/64").
		link(Link{Name: "lan1", Speed: 100000, MTU: 9000}, "fe80::b/64").
		link(Link{Name: "eno1", Speed: 1000}, map[string]string{"a": "10.5.0.1/24", "b": "10.5.0.2/24"}[name]).
		route("0.0.0.0/0", "lan0", "fe80::1", own).route("0.0.0.0/0", "lan1", "fe80::2", own)
}

// slowLan makes one link of a bgpHost slower than its management NIC.
func slowLan(b *hostSpec) *hostSpec {
	for i := range b.inv.Links {
		if b.inv.Links[i].Name == "lan1" {
			b.inv.Links[i].Speed = 100
		}
	}
	return b
}

// routeTable adds a route to a table other than the main table.
func (b *hostSpec) routeTable(table int, dst, dev, via string) *hostSpec {
	b.route(dst, dev, via, "")
	b.inv.Routes[len(b.inv.Routes)-1].Table = table
	return b
}

// withRule adds a rule to a host.
func withRule(b *hostSpec, r Rule) *hostSpec {
	b.inv.Rules = append(b.inv.Rules, r)
	return b
}

// rule makes a table decide for packets from an address.
func (b *hostSpec) rule(priority int, from string, table int) *hostSpec {
	a := addr(from)
	b.inv.Rules = append(b.inv.Rules, Rule{Priority: priority, From: netip.PrefixFrom(a, a.BitLen()), Table: table})
	return b
}
