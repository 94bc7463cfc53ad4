package netif

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestChoose checks the interface, address, and source that a host uses to reach its peers.
func TestChoose(t *testing.T) {
	two := func() *hostSpec {
		return newHostSpec("n1").
			link(Link{Name: "eth0", Speed: 1000}, "10.1.0.1/24", "fd00::1/64").
			link(Link{Name: "hsn0", Speed: 200000}, "10.2.0.1/24").
			link(Link{Name: "eth9", Flags: Up, Oper: "down"}, "10.9.0.1/24").
			route("0.0.0.0/0", "eth0", "10.1.0.254", "")
	}
	tests := []struct {
		name   string
		host   *hostSpec
		peers  []string
		req    Request
		want   string // "interface address source"
		warn   string
		reason map[string]string // parts of rejections
	}{
		{
			name: "the route decides", host: two(), peers: []string{"10.2.0.9"}, want: "hsn0 10.2.0.1 auto",
			reason: map[string]string{"eth0": "the route to 10.2.0.9 leaves by hsn0", "lo": "loopback", "eth9": "no carrier"},
		},
		{name: "an address of this host is not a peer", host: two(), peers: []string{"10.1.0.1", "10.2.0.9"}, want: "hsn0 10.2.0.1 auto"},
		{name: "an IPv4 peer in IPv6 form", host: two(), peers: []string{"::ffff:10.2.0.9"}, want: "hsn0 10.2.0.1 auto"},
		{name: "IPv6 peers", host: two(), peers: []string{"fd00::9"}, want: "eth0 fd00::1 auto"},
		{
			name: "only addresses of this host: loopback", host: two(), peers: []string{"10.1.0.1", "127.0.0.1"}, want: "lo 127.0.0.1 auto",
			reason: map[string]string{"eth0": "not needed", "eth9": "no carrier"},
		},
		{name: "no peers, IPv6", host: two(), req: Request{Family: IPv6}, want: "lo ::1 auto"},
		{
			name: "no peers, loopback excluded", host: two(), req: Request{Exclude: []string{"lo"}}, want: "hsn0 10.2.0.1 auto",
			reason: map[string]string{"lo": "excluded", "eth0": "1 Gb/s against 200 Gb/s on hsn0"},
		},
		{name: "no peers, named", host: two(), req: Request{Interface: "eth0"}, want: "eth0 10.1.0.1 spec"},
		{
			name: "named", host: two(), peers: []string{"10.1.0.9"}, req: Request{Interface: "eth0"}, want: "eth0 10.1.0.1 spec",
			reason: map[string]string{"hsn0": "eth0 is requested", "eth9": "no carrier"},
		},
		{
			name: "named, but packets leave by another", host: two(), peers: []string{"10.2.0.9", "10.2.0.10"}, req: Request{Interface: "eth0"},
			want: "eth0 10.1.0.1 spec",
			warn: "asymmetric route: packets to 10.2.0.9 and 1 more peers leave by hsn0 unless the socket is bound to the device eth0; the route to 10.2.0.0/24 is on hsn0",
		},
		{
			name: "named, and packets from its address are dropped",
			host: withRule(two(), Rule{Priority: 50, From: mustPrefix("10.1.0.1/32"), Action: Prohibit}), peers: []string{"10.2.0.9"}, req: Request{Interface: "eth0"},
			want: "eth0 10.1.0.1 spec",
			warn: "asymmetric route: packets to 10.2.0.9 leave by hsn0 unless the socket is bound to the device eth0",
		},
		{
			name: "a link without a device is not fast because it says so",
			host: newHostSpec("n1").link(Link{Name: "eth0", Kind: "veth", Speed: 100000}, "10.1.0.1/24").
				link(Link{Name: "ens5", PCI: "virtio2"}, "10.1.0.2/24"),
			peers: []string{"10.1.0.9"}, want: "ens5 10.1.0.2 auto", warn: "asymmetric route",
			reason: map[string]string{"eth0": "it is virtual (veth) and ens5 is hardware"},
		},
		{
			name: "an unknown speed ranks like a known one",
			host: newHostSpec("n1").link(Link{Name: "ens5", PCI: "virtio2", MTU: 9000}, "10.1.0.1/24").
				link(Link{Name: "ens6", Speed: 1000}, "10.1.0.2/24"),
			peers: []string{"10.1.0.9"}, want: "ens5 10.1.0.1 auto",
			reason: map[string]string{"ens6": "its mtu is smaller: 1500 against 9000 on ens5"},
		},
		{
			name: "a bridge over a NIC is hardware, a bridge over nothing is not",
			host: newHostSpec("n1").link(Link{Name: "virbr0", Kind: "bridge", Speed: 10000, MTU: 9000}, "10.1.0.1/24").
				link(Link{Name: "br0", Kind: "bridge"}, "10.1.0.2/24").
				link(Link{Name: "eno1", Speed: 25000, Master: "br0"}),
			peers: []string{"10.1.0.9"}, want: "br0 10.1.0.2 auto", warn: "asymmetric route",
			reason: map[string]string{"eno1": "port of bridge br0", "virbr0": "virtual (bridge)"},
		},
		{
			name: "a vlan has the speed of the bond under it",
			host: newHostSpec("n1").link(Link{Name: "eno1", Speed: 10000}, "10.1.0.1/24").
				link(Link{Name: "bond0", Kind: "bond", Speed: 50000}).
				link(Link{Name: "eth1", Speed: 25000, Master: "bond0"}).link(Link{Name: "eth2", Speed: 25000, Master: "bond0"}).
				link(Link{Name: "bond0.7", Kind: "vlan", Parent: "bond0"}, "10.1.0.2/24"),
			peers: []string{"10.1.0.9"}, want: "bond0.7 10.1.0.2 auto", warn: "asymmetric route",
			reason: map[string]string{"eno1": "10 Gb/s against 50 Gb/s on bond0.7", "eth1": "member of bond0"},
		},
		{
			name:  "the default route, all else equal",
			host:  newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24").link(Link{Name: "eth1"}, "10.1.0.2/24").route("0.0.0.0/0", "eth1", "10.1.0.254", ""),
			peers: []string{"10.1.0.9"}, want: "eth1 10.1.0.2 auto", warn: "asymmetric route",
			reason: map[string]string{"eth0": "the default route is on eth1"},
		},
		{
			name: "of two default routes, that of the lower metric",
			host: newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24").link(Link{Name: "eth1"}, "10.1.0.2/24").
				routeMetric("0.0.0.0/0", "eth0", "10.1.0.254", 512).routeMetric("0.0.0.0/0", "eth1", "10.1.0.254", 100),
			peers: []string{"10.1.0.9"}, want: "eth1 10.1.0.2 auto", warn: "asymmetric route",
		},
		{
			name: "a bridge of veth devices is not usable, the veth device of a container is",
			host: newHostSpec("n1").link(Link{Name: "br0", Kind: "bridge", MTU: 9000}, "10.1.0.1/24").link(Link{Name: "veth7", Kind: "veth", Master: "br0"}).
				link(Link{Name: "eth0", Kind: "veth"}, "10.1.0.2/24"),
			peers: []string{"10.1.0.9"}, want: "eth0 10.1.0.2 auto", warn: "asymmetric route",
			reason: map[string]string{"br0": "it is virtual (bridge) and eth0 is a container's veth"},
		},
		{
			name: "a default route of a higher metric is for the day the other one fails",
			host: newHostSpec("n1").link(Link{Name: "eth0", Speed: 1000}, "10.1.0.1/24").link(Link{Name: "wwan0", Speed: 100000}, "10.2.0.1/24").
				routeMetric("0.0.0.0/0", "wwan0", "10.2.0.254", 700).routeMetric("0.0.0.0/0", "eth0", "10.1.0.254", 100),
			peers: []string{"192.0.2.1"}, want: "eth0 10.1.0.1 auto",
			reason: map[string]string{"wwan0": "the route to 192.0.2.1 leaves by eth0"},
		},
		{
			name: "as is one without a gateway",
			host: newHostSpec("n1").link(Link{Name: "eth0", Speed: 1000}, "10.1.0.1/24").link(Link{Name: "wwan0", Speed: 100000}, "10.2.0.1/24").
				routeMetric("0.0.0.0/0", "wwan0", "", 700).routeMetric("0.0.0.0/0", "eth0", "10.1.0.254", 100),
			peers: []string{"192.0.2.1"}, want: "eth0 10.1.0.1 auto",
		},
		{
			name: "a macvlan has the rating of its parent device",
			host: newHostSpec("n1").link(Link{Name: "eno1", Speed: 1000}, "10.1.0.1/24").link(Link{Name: "eno2", Speed: 25000}).
				link(Link{Name: "net1", Kind: "macvlan", Parent: "eno2"}, "10.1.0.2/24"),
			peers: []string{"10.1.0.9"}, want: "net1 10.1.0.2 auto", warn: "asymmetric route",
		},
		{
			name:  "routes to the subnets of a host's own addresses need not be listed",
			host:  unlisted(newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24").link(Link{Name: "eth1"}, "10.3.0.1/24")),
			peers: []string{"10.3.0.7"}, want: "eth1 10.3.0.1 auto",
		},
		{
			name:  "the address that the route sends from",
			host:  newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24", "10.1.0.2/24", "10.3.0.1/24").route("10.7.0.0/16", "eth0", "10.1.0.254", "10.1.0.2"),
			peers: []string{"10.7.0.1"}, want: "eth0 10.1.0.2 auto",
		},
		{
			name:  "else the one in the peer's subnet",
			host:  onlyDefault(newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24", "10.3.0.1/24").route("0.0.0.0/0", "eth0", "10.1.0.254", "")),
			peers: []string{"10.3.0.7"}, want: "eth0 10.3.0.1 auto",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Choose(tt.host.done(t), addrs(tt.peers), tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Interface + " " + c.Addr.String() + " " + c.Source; got != tt.want {
				t.Errorf("chose %s, want %s", got, tt.want)
			}
			got := strings.Join(c.Warnings, "\n")
			if tt.warn == "" && got != "" || !strings.HasPrefix(got, tt.warn) {
				t.Errorf("warnings %q, want %q", got, tt.warn)
			}
			for _, r := range c.Rejected {
				if !strings.Contains(r.Reason, tt.reason[r.Interface]) {
					t.Errorf("%s rejected for %q, want %q", r.Interface, r.Reason, tt.reason[r.Interface])
				}
			}
		})
	}
}

// TestChooseRefuses checks the errors and hints if no interface can be used or the request is not
// valid.
func TestChooseRefuses(t *testing.T) {
	host := func() *hostSpec {
		return newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24").
			link(Link{Name: "eth1", Flags: Up, Oper: "down"}, "10.2.0.1/24").
			link(Link{Name: "usb0"}, "169.254.3.1/16").link(Link{Name: "bond0", Kind: "bond"}, "10.4.0.1/24").
			link(Link{Name: "eth2", Master: "bond0"})
	}
	tests := []struct {
		name  string
		host  *hostSpec
		peers []string
		req   Request
		want  string
		hint  string
	}{
		{"no route", host(), []string{"192.0.2.1"}, Request{}, "choose a network interface on n1: no route to 192.0.2.1; this host has 10.1.0.1/24 (eth0) and 10.4.0.1/24 (bond0)", "ip route"},
		{"no carrier", host(), []string{"10.2.0.9"}, Request{}, "the route to 10.2.0.9 leaves by eth1, which is unusable: no carrier", "repair eth1"},
		{"down, and without routes", unlisted(newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24").link(Link{Name: "eth1", Oper: "down"}, "10.2.0.1/24")),
			[]string{"10.2.0.9"}, Request{}, "no route to 10.2.0.9", "ip route"},
		{"excluded", host(), []string{"10.1.0.9"}, Request{Exclude: []string{"eth0"}}, "leaves by eth0, which is unusable: excluded", ""},
		{"blackhole", host().route("10.1.0.9/32", "", "", ""), []string{"10.1.0.9"}, Request{}, "the route to 10.1.0.9 drops packets", "ip route"},
		{"peers on two networks", host(), []string{"10.1.0.9", "10.4.0.9"}, Request{}, "no single interface reaches all peers: the route to 10.1.0.9 leaves by eth0, but the route to 10.4.0.9 leaves by bond0", "one network"},
		{"peers of two families", host(), []string{"10.1.0.9", "fd00::9"}, Request{}, "peers have different address families: 10.1.0.9 and fd00::9", ""},
		{"peers of the wrong family", host(), []string{"10.1.0.9"}, Request{Family: IPv6}, "IPv6 is requested, but peer 10.1.0.9 has an IPv4 address", ""},
		{"named, absent", host(), []string{"10.1.0.9"}, Request{Interface: "hsn0"}, `no interface "hsn0"`, "use one of lo, eth0, eth1, usb0, bond0, and eth2"},
		{"named, no carrier", host(), []string{"10.1.0.9"}, Request{Interface: "eth1"}, "is unusable: no carrier", "10.1.0.1/24 (eth0)"},
		{"named, part of a bond", host(), []string{"10.1.0.9"}, Request{Interface: "eth2"}, "unusable: member of bond0, which has the address", ""},
		{"named, no route", host(), []string{"192.0.2.1"}, Request{Interface: "eth0"}, `requested interface "eth0": no route to 192.0.2.1`, "ip route"},
		{"loopback to others", host(), []string{"10.1.0.9"}, Request{Interface: "lo"}, "unusable: loopback: reaches this host only", ""},
		{"no address at all", noLinks("n1"), nil, Request{}, "no interface has an IPv4 address", ""},
		{"unknown family", host(), nil, Request{Family: "x"}, `unknown address family "x"`, "use auto"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Choose(tt.host.done(t), addrs(tt.peers), tt.req)
			if err == nil {
				t.Fatalf("chose %s", c.Interface)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(hints.Of(err), tt.hint) {
				t.Errorf("error %q with hint %q,\nwant %q with %q", err, hints.Of(err), tt.want, tt.hint)
			}
		})
	}
	if _, err := Choose(host().done(t), []netip.Addr{{}}, Request{}); err == nil {
		t.Error("chose for a peer without an address")
	}
}

// TestChooseOrder checks that the choice does not depend on the order of the links.
func TestChooseOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, tc := range loadCases(t) {
		want, err := Choose(tc.inventory, tc.Peers, Request{})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			inv := tc.inventory
			inv.Links = slices.Clone(inv.Links)
			rng.Shuffle(len(inv.Links), func(i, j int) { inv.Links[i], inv.Links[j] = inv.Links[j], inv.Links[i] })
			got, err := Choose(inv, tc.Peers, Request{})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v, then %+v", tc.ID, want, got)
			}
		}
	}
}

// TestChooseIgnoresNames checks that renaming every interface does not change which one is chosen.
func TestChooseIgnoresNames(t *testing.T) {
	for _, tc := range loadCases(t) {
		inv := tc.inventory
		names := map[string]string{"": ""}
		for i, l := range inv.Links {
			names[l.Name] = "x" + string(rune('a'+len(inv.Links)-i))
		}
		inv.Links = slices.Clone(inv.Links)
		for i := range inv.Links {
			l := &inv.Links[i]
			l.Name, l.Master, l.Parent = names[l.Name], names[l.Master], names[l.Parent]
		}
		inv.Routes = slices.Clone(inv.Routes)
		for i := range inv.Routes {
			inv.Routes[i].Dev = names[inv.Routes[i].Dev]
		}
		got, err := Choose(inv, tc.Peers, Request{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Interface != names[tc.Want.Interface] {
			t.Errorf("%s: chose %s, want %s (%s)", tc.ID, got.Interface, names[tc.Want.Interface], tc.Want.Interface)
		}
	}
}

// TestChoiceShadowed checks that a program that gets only the interface name uses its first
// address.
func TestChoiceShadowed(t *testing.T) {
	inv := newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24", "10.2.0.1/24").done(t)
	for peer, want := range map[string]bool{"10.1.0.9": false, "10.2.0.9": true} {
		c, err := Choose(inv, []netip.Addr{addr(peer)}, Request{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Shadowed != want {
			t.Errorf("peer %s: %s shadowed %t, want %t", peer, c.Addr, c.Shadowed, want)
		}
	}
}
