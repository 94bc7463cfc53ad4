package netif

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// testCluster returns n nodes with real links: a management network, a fast network, and a
// bridge with the same address on each node.
func testCluster(t *testing.T, n int) []*space {
	t.Helper()
	hub := newSpace(t)
	hub.Bridge("mgmt")
	hub.Bridge("fast")
	hub.Addr("mgmt", "10.10.0.254/24")
	var nodes []*space
	for i := 1; i <= n; i++ {
		node := newSpace(t)
		hub.plug(node, "mgmt", "eth0", fmt.Sprintf("m%d", i), 1500)
		hub.plug(node, "fast", "hsn0", fmt.Sprintf("f%d", i), 9000)
		node.Addr("eth0", fmt.Sprintf("10.10.0.%d/24", i))
		node.Addr("hsn0", fmt.Sprintf("10.20.0.%d/24", i))
		node.Bridge("docker0")
		node.Addr("docker0", "172.17.0.1/16")
		node.Route(netlink.Route{Gw: net.IPv4(10, 10, 0, 254)}, "0.0.0.0/0", "eth0")
		node.ready("eth0", "hsn0")
		nodes = append(nodes, node)
	}
	return nodes
}

// TestRealCluster checks the agreement of three hosts in network namespaces, with interfaces of
// the kernel.
func TestRealCluster(t *testing.T) {
	nodes := testCluster(t, 3)
	collect := func() []Inventory {
		var invs []Inventory
		for i, node := range nodes {
			invs = append(invs, node.collect(fmt.Sprintf("n%d", i+1)))
		}
		return invs
	}
	choices, err := Agree(collect(), Request{})
	must(t, err)
	for i, c := range choices {
		if want := fmt.Sprintf("10.20.0.%d", i+1); c.Interface != "hsn0" || c.Addr.String() != want || c.MTU != 9000 || len(c.Warnings) > 0 {
			t.Errorf("n%d uses %+v, want hsn0 %s", i+1, c, want)
		}
		for _, r := range c.Rejected {
			if r.Interface == "docker0" && !strings.HasPrefix(r.Reason, "172.17.0.1 is also an address of ") {
				t.Errorf("n%d: docker0 rejected for %q", i+1, r.Reason)
			}
		}
	}
	talk(t, nodes[0], nodes[2], choices[0].Addr, choices[2].Addr)

	// Choose on one host, with the addresses of the others, picks the same interface.
	c, err := Choose(collect()[0], []netip.Addr{choices[1].Addr, choices[2].Addr}, Request{})
	must(t, err)
	if c.Interface != "hsn0" {
		t.Errorf("n1 chose %s, want hsn0", c.Interface)
	}

	nodes[1].Down("hsn0")
	choices, err = Agree(collect(), Request{})
	must(t, err)
	for i, c := range choices {
		if c.Interface != "eth0" || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "hsn0 on n2 is unusable: administratively down") {
			t.Errorf("with hsn0 down on n2, n%d uses %s, warnings %q", i+1, c.Interface, c.Warnings)
		}
	}
	if _, err := Agree(collect(), Request{Interface: "hsn0"}); err == nil || !strings.Contains(err.Error(), `n2: requested interface "hsn0" is unusable: administratively down`) {
		t.Errorf("asked for an interface that is down: %v", err)
	}
}

// TestRealLoopbackDown checks a host without its loopback, which cannot reach even its own
// addresses.
func TestRealLoopbackDown(t *testing.T) {
	hub, node := newSpace(t), newSpace(t)
	hub.Bridge("mgmt")
	hub.plug(node, "mgmt", "eth0", "m1", 1500)
	node.Addr("eth0", "10.10.0.1/24")
	c, err := Choose(node.collect("n1"), nil, Request{})
	must(t, err)
	if c.Interface != "lo" || c.Addr != addr("127.0.0.1") {
		t.Errorf("chose %s %s, want lo 127.0.0.1", c.Interface, c.Addr)
	}
	node.Down("lo")
	for _, req := range []Request{{}, {Exclude: []string{"lo"}}, {Interface: "eth0"}} {
		if c, err := Choose(node.collect("n1"), nil, req); err == nil || hints.Of(err) != "run `ip link set lo up`" {
			t.Errorf("%+v: chose %s, %v", req, c.Interface, err)
		}
	}
	node.ready("eth0")
	c, err = Choose(node.collect("n1"), []netip.Addr{addr("10.10.0.2")}, Request{})
	must(t, err)
	if c.Interface != "eth0" || len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "loopback lo is down") {
		t.Errorf("chose %s with warnings %q", c.Interface, c.Warnings)
	}
}

// TestRealNoCarrier checks a cable whose other end is down: the link is up without a carrier.
func TestRealNoCarrier(t *testing.T) {
	hub, node := newSpace(t), newSpace(t)
	hub.Bridge("mgmt")
	hub.plug(node, "mgmt", "eth0", "m1", 1500)
	node.Addr("eth0", "10.10.0.1/24")
	node.ready("eth0")
	hub.Down("m1")
	node.Carrier("eth0", false)
	_, err := Choose(node.collect("n1"), []netip.Addr{addr("10.10.0.2")}, Request{})
	if err == nil || !strings.Contains(err.Error(), "the route to 10.10.0.2 leaves by eth0, which is unusable: no carrier") {
		t.Errorf("error %v", err)
	}
}

// TestLookupAgreesWithKernel checks that lookups in the inventory's routing table agree with
// lookups by the kernel.
func TestLookupAgreesWithKernel(t *testing.T) {
	hub, node := newSpace(t), newSpace(t)
	hub.Bridge("br")
	for _, name := range []string{"eth0", "eth1", "eth2"} {
		hub.plug(node, "br", name, "p"+name, 1500)
	}
	node.Addr("eth0", "192.168.3.15/20")
	node.Addr("eth1", "192.168.5.15/20")
	node.Addr("eth1", "192.168.5.16/20")
	node.Addr("eth2", "10.13.0.5/32")
	node.Addr("lo", "192.0.2.77/32")
	node.Route(netlink.Route{Gw: net.IPv4(192, 168, 0, 1), Priority: 100}, "0.0.0.0/0", "eth0")
	node.Route(netlink.Route{Gw: net.IPv4(192, 168, 0, 2), Priority: 50}, "0.0.0.0/0", "eth1")
	node.Route(netlink.Route{Scope: netlink.SCOPE_LINK}, "10.13.0.1/32", "eth2")
	node.Route(netlink.Route{Gw: net.IPv4(10, 13, 0, 1)}, "10.13.0.0/16", "eth2")
	node.Route(netlink.Route{Gw: net.IPv4(192, 168, 0, 9)}, "10.13.7.0/24", "eth0")
	node.Route(netlink.Route{Type: 6}, "10.14.0.0/16", "") // blackhole
	node.Route(netlink.Route{Gw: net.IPv4(192, 168, 0, 3), Src: net.IPv4(192, 0, 2, 77)}, "198.51.100.0/24", "eth0")
	node.Route(netlink.Route{MultiPath: []*netlink.NexthopInfo{
		{LinkIndex: node.Link("eth0").Attrs().Index, Gw: net.IPv4(192, 168, 0, 4)},
		{LinkIndex: node.Link("eth1").Attrs().Index, Gw: net.IPv4(192, 168, 0, 5)},
	}}, "203.0.113.0/24", "")

	inv := node.collect("n1")
	h := newHost(&inv, "n1")
	for _, peer := range []string{"192.168.5.13", "192.168.15.1", "8.8.8.8", "10.13.0.1", "10.13.9.9", "10.13.7.1", "10.14.0.1", "198.51.100.9", "203.0.113.9"} {
		paths := h.egressPaths(addr(peer))
		found, err := node.NL.RouteGet(net.ParseIP(peer))
		if err != nil {
			if len(paths) > 0 {
				t.Errorf("%s: leaves by %s, but the kernel says %v", peer, paths[0].dev, err)
			}
			continue
		}
		link, err := node.NL.LinkByIndex(found[0].LinkIndex)
		must(t, err)
		leaves := false
		for _, p := range paths {
			leaves = leaves || p.dev == link.Attrs().Name
		}
		// The kernel selects one of several next hops by a hash of the flow.
		if multipath := peer == "203.0.113.9"; !leaves || !multipath && paths[0].dev != link.Attrs().Name || multipath && len(paths) != 2 {
			t.Errorf("%s: leaves by %+v, but the kernel says %s", peer, paths, link.Attrs().Name)
		}
		if src := h.owner[addrOf(found[0].Src)]; paths[0].link != src && len(paths) == 1 {
			t.Errorf("%s: sent from %s, but the kernel says %s", peer, paths[0].link, src)
		}
	}

	// Two interfaces on one subnet: the kernel sends by the first.
	c, err := Choose(inv, []netip.Addr{addr("192.168.5.13")}, Request{Interface: "eth1"})
	must(t, err)
	if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "asymmetric route: packets to 192.168.5.13 leave by eth0") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

// TestCollectKinds checks that Collect finds the kind, master, and parent of each link kind that
// this kernel supports.
func TestCollectKinds(t *testing.T) {
	s := newSpace(t)
	s.Bridge("br0")
	attrs := func(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name} }
	must(t, s.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0", MasterIndex: s.Link("br0").Attrs().Index}, PeerName: "v1"}))
	s.Up("v0")
	s.Up("v1")
	below := attrs("mv0")
	below.ParentIndex = s.Link("v1").Attrs().Index
	must(t, s.NL.LinkAdd(&netlink.Macvlan{LinkAttrs: below, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	must(t, s.NL.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs("vx0"), VxlanId: 7, VtepDevIndex: s.Link("v1").Attrs().Index, Port: 4789}))
	var tunErr error
	s.Do(func() error { // created by ioctl, so in the thread's namespace
		tunErr = netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs("tun0"), Mode: netlink.TUNTAP_MODE_TUN})
		return nil
	})
	// On some hosts only root may open the device file, even in a user namespace.
	hasTun := !errors.Is(tunErr, fs.ErrPermission)
	if hasTun {
		must(t, tunErr)
		s.Addr("tun0", "10.8.0.1/24")
	}
	s.Addr("mv0", "10.9.0.1/24")

	inv := s.collect("n1")
	h := newHost(&inv, "n1")
	tests := []struct{ name, kind, master, parent, unfit string }{
		{"lo", "", "", "", "loopback: reaches this host only"},
		{"br0", "bridge", "", "", "no address"},
		{"v0", "veth", "br0", "", "port of bridge br0"},
		{"v1", "veth", "", "", "no address"},
		{"mv0", "macvlan", "", "v1", ""},
		{"vx0", "vxlan", "", "", "administratively down"},
		{"tun0", "tun", "", "", "no carrier: no cable is connected, or the other end is down"},
	}
	for _, tt := range tests {
		l := h.byName[tt.name]
		if tt.name == "tun0" && !hasTun {
			continue
		}
		if l == nil {
			t.Errorf("%s was not found", tt.name)
			continue
		}
		if l.Kind != tt.kind || l.Master != tt.master || l.Parent != tt.parent {
			t.Errorf("%s: kind %q, master %q, parent %q, want %+v", tt.name, l.Kind, l.Master, l.Parent, tt)
		}
		reason := h.unusableReason(l, scope{family: IPv4})
		if tt.name == "v1" || tt.name == "br0" { // they may have an IPv6 address by now
			reason, _, _ = strings.Cut(strings.Replace(reason, "no IPv4 address", "no address", 1), ",")
		}
		if reason != tt.unfit {
			t.Errorf("%s is unfit for %q, want %q", tt.name, reason, tt.unfit)
		}
		if h.rate(l, scope{family: IPv4}).class == classHardware {
			t.Errorf("%s passes for hardware", tt.name)
		}
	}
}

// TestCollectForeignParent checks a parent in another namespace whose index equals the index of a
// local link.
func TestCollectForeignParent(t *testing.T) {
	outside, inside := newSpace(t), newSpace(t)
	must(t, outside.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "uplink", Index: 50}}))
	must(t, inside.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "docker0", Index: 50}}))
	must(t, outside.NL.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "net1", ParentIndex: 50}, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	must(t, outside.NL.LinkSetNsFd(outside.Link("net1"), int(inside.NS)))
	for _, l := range inside.collect("n1").Links {
		if l.Name == "net1" {
			if l.Kind != "macvlan" || l.Parent != "" {
				t.Errorf("net1: kind %q, parent %q, want macvlan without one", l.Kind, l.Parent)
			}
			return
		}
	}
	t.Error("net1 was not found")
}
