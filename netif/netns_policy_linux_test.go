package netif

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rule adds an IPv4 policy rule; change sets its fields.
func (s *space) rule(priority, table int, change func(*netlink.Rule)) {
	s.T.Helper()
	r := netlink.NewRule()
	r.Priority, r.Table, r.Family = priority, table, netlink.FAMILY_V4
	change(r)
	must(s.T, s.NL.RuleAdd(r))
}

// ready waits until the kernel has detected the carrier of links, shortly after they come up.
func (s *space) ready(names ...string) {
	s.T.Helper()
	for _, name := range names {
		s.Carrier(name, true)
	}
}

func ipNet(text string) *net.IPNet {
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return n
}

// TestRealPolicyRouting checks that the collected rules and tables match the kernel's, and lookups
// agree with the kernel's, with and without a source address.
func TestRealPolicyRouting(t *testing.T) {
	hub, node := newSpace(t), newSpace(t)
	hub.Bridge("br")
	for _, name := range []string{"eth0", "eth1", "eth2"} {
		hub.plug(node, "br", name, "p"+name, 1500)
	}
	node.Addr("eth0", "192.168.3.15/20")
	node.Addr("eth1", "192.168.5.15/20")
	node.Addr("eth2", "10.66.0.2/24")
	if inv := node.collect("n1"); inv.Rules != nil {
		t.Errorf("the kernel's own rules are listed: %+v", inv.Rules)
	}
	node.Route(netlink.Route{Gw: net.IPv4(192, 168, 0, 1)}, "0.0.0.0/0", "eth0")
	node.Route(netlink.Route{Table: 102, Scope: netlink.SCOPE_LINK}, "192.168.0.0/20", "eth1")
	node.Route(netlink.Route{Table: 102, Gw: net.IPv4(192, 168, 0, 2)}, "0.0.0.0/0", "eth1")
	node.Route(netlink.Route{Table: 51820, Scope: netlink.SCOPE_LINK}, "0.0.0.0/0", "eth2")
	node.Route(netlink.Route{Table: 51820, Type: unix.RTN_THROW}, "198.51.100.0/24", "")
	node.Route(netlink.Route{Table: 77, Scope: netlink.SCOPE_LINK}, "0.0.0.0/0", "eth1") // selected by no rule
	node.rule(100, 102, func(r *netlink.Rule) { r.Src = ipNet("192.168.5.15/32") })
	node.rule(110, 102, func(r *netlink.Rule) { r.Dst = ipNet("203.0.113.0/24") })
	node.rule(120, 77, func(r *netlink.Rule) { r.Mark = 9 })
	node.rule(130, 0, func(r *netlink.Rule) { r.Dst, r.Type = ipNet("203.0.114.0/24"), unix.RTN_PROHIBIT })
	node.rule(140, 0, func(r *netlink.Rule) { r.Src, r.Type = ipNet("10.66.0.2/32"), unix.RTN_BLACKHOLE })
	node.rule(150, 0, func(r *netlink.Rule) { r.Src, r.Goto = ipNet("192.168.3.15/32"), 32766 })
	node.rule(160, 0, func(r *netlink.Rule) { r.Goto = 170 }) // no rule has this priority
	node.rule(200, unix.RT_TABLE_MAIN, func(r *netlink.Rule) { r.SuppressPrefixlen = 0 })
	node.rule(201, 51820, func(r *netlink.Rule) { r.Mark, r.Invert = 0xca6c, true })

	inv := node.collect("n1")
	zero, all := 0, IPv4.defaultPrefix()
	want := []Rule{
		{Priority: 0, From: all, Table: 255},
		{Priority: 0, From: IPv6.defaultPrefix(), Table: 255},
		{Priority: 100, From: mustPrefix("192.168.5.15/32"), Table: 102},
		{Priority: 110, To: mustPrefix("203.0.113.0/24"), Table: 102},
		{Priority: 120, From: all, Mark: 9, Table: 77},
		{Priority: 130, To: mustPrefix("203.0.114.0/24"), Action: Prohibit},
		{Priority: 140, From: mustPrefix("10.66.0.2/32"), Action: Blackhole},
		{Priority: 150, From: mustPrefix("192.168.3.15/32"), Goto: 32766},
		{Priority: 200, From: all, Table: 254, Suppress: &zero},
		{Priority: 201, From: all, Mark: 0xca6c, Not: true, Table: 51820},
		{Priority: 32766, From: all, Table: 254},
		{Priority: 32766, From: IPv6.defaultPrefix(), Table: 254},
		{Priority: 32767, From: all, Table: 253},
	}
	// A kernel without IPv6 policy routing lists no IPv6 rules.
	ours := slices.DeleteFunc(slices.Clone(want), func(r Rule) bool { return r.From.IsValid() && r.From.Addr().Is6() })
	if !reflect.DeepEqual(inv.Rules, want) && !reflect.DeepEqual(inv.Rules, ours) {
		t.Errorf("rules\n%+v, want\n%+v", inv.Rules, want)
	}
	h := newHost(&inv, "n1")
	for _, src := range []string{"", "192.168.3.15", "192.168.5.15", "10.66.0.2"} {
		for _, peer := range []string{"192.168.5.13", "8.8.8.8", "203.0.113.9", "203.0.114.9", "198.51.100.9", "10.66.0.9"} {
			var from netip.Addr
			options := &netlink.RouteGetOptions{}
			if src != "" {
				from, options.SrcAddr = addr(src), net.ParseIP(src)
			}
			found, err := node.NL.RouteGetWithOptions(net.ParseIP(peer), options)
			kernels := "nowhere"
			if err == nil {
				l, err := node.NL.LinkByIndex(found[0].LinkIndex)
				must(t, err)
				kernels = l.Attrs().Name
			}
			ours := "nowhere"
			if routes, _ := h.lookup(from, addr(peer)); len(routes) > 0 && routes[0].Dev != "" {
				ours = routes[0].Dev
			}
			if ours != kernels {
				t.Errorf("from %q to %s: leaves by %s, but the kernel says %s (%v)", src, peer, ours, kernels, err)
			}
		}
	}
}

// TestRealPolicyChoice checks two NICs on one subnet, with a rule for each: a connection from the
// chosen address leaves by its own NIC, as the choice predicts.
func TestRealPolicyChoice(t *testing.T) {
	hub := newSpace(t)
	hub.Bridge("slow")
	hub.Bridge("fast")
	var nodes []*space
	var invs []Inventory
	for i := 1; i <= 2; i++ {
		node := newSpace(t)
		hub.plug(node, "slow", "eth0", fmt.Sprintf("s%d", i), 1500)
		hub.plug(node, "fast", "eth1", fmt.Sprintf("f%d", i), 9000)
		node.Addr("eth0", fmt.Sprintf("192.168.3.%d/20", i))
		node.Addr("eth1", fmt.Sprintf("192.168.5.%d/20", i))
		for table, nic := range map[int]string{101: "eth0", 102: "eth1"} {
			own := fmt.Sprintf("192.168.%d.%d", 2*table-199, i)
			node.Route(netlink.Route{Table: table, Scope: netlink.SCOPE_LINK}, "192.168.0.0/20", nic)
			node.rule(table, table, func(r *netlink.Rule) { r.Src = ipNet(own + "/32") })
		}
		node.ready("eth0", "eth1")
		nodes = append(nodes, node)
		invs = append(invs, node.collect(fmt.Sprintf("n%d", i)))
	}
	choices, err := Agree(invs, Request{})
	must(t, err)
	for i, c := range choices {
		if c.Interface != "eth1" || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "leave by eth0 unless the socket is bound to "+c.Addr.String()) {
			t.Errorf("n%d uses %s %s, warnings %q", i+1, c.Interface, c.Addr, c.Warnings)
		}
	}
	talk(t, nodes[0], nodes[1], choices[0].Addr, choices[1].Addr)
	talk(t, nodes[1], nodes[0], choices[1].Addr, choices[0].Addr)
}

// TestRealIPv6Only checks an IPv6-only fabric next to an IPv4 management network that some hosts
// lack.
func TestRealIPv6Only(t *testing.T) {
	hub := newSpace(t)
	hub.Bridge("fast")
	hub.Bridge("mgmt")
	var nodes []*space
	var invs []Inventory
	for i := 1; i <= 2; i++ {
		node := newSpace(t)
		hub.plug(node, "fast", "hsn0", fmt.Sprintf("f%d", i), 9000)
		hub.plug(node, "mgmt", "eth0", fmt.Sprintf("m%d", i), 1500)
		a, err := netlink.ParseAddr(fmt.Sprintf("fd00:7::%d/64", i))
		must(t, err)
		a.Flags = unix.IFA_F_NODAD // otherwise it is tentative for a second
		if err := node.NL.AddrAdd(node.Link("hsn0"), a); err != nil {
			t.Fatalf("IPv6 address: %v", err)
		}
		node.Up("hsn0")
		node.ready("hsn0")
		if i == 1 {
			node.Addr("eth0", "10.10.0.1/24")
		}
		nodes = append(nodes, node)
		invs = append(invs, node.collect(fmt.Sprintf("n%d", i)))
	}
	choices, err := Agree(invs, Request{})
	must(t, err)
	for i, c := range choices {
		if want := fmt.Sprintf("fd00:7::%d", i+1); c.Interface != "hsn0" || c.Addr.String() != want || c.Family != IPv6 {
			t.Errorf("n%d uses %s %s, want hsn0 %s", i+1, c.Interface, c.Addr, want)
		}
	}
	talk(t, nodes[0], nodes[1], choices[0].Addr, choices[1].Addr)
}
