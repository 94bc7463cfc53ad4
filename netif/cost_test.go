package netif

import (
	"fmt"
	"net/netip"
	"testing"
)

// crowdedHost has 64 links and 10,000 routes: four Slingshot NICs among VLANs and container
// interfaces, and the routes of a fabric and of a policy table.
func crowdedHost(t testing.TB, i int) Inventory {
	b := newHostSpec(fmt.Sprintf("c%d", i)).
		link(Link{Name: "eth0", Speed: 1000, PCI: "0000:04:00.0"}, fmt.Sprintf("10.0.0.%d/16", i+1)).
		route("0.0.0.0/0", "eth0", "10.0.255.254", "")
	for n := range 4 {
		b.link(Link{Name: fmt.Sprintf("hsn%d", n), Speed: 200000, MTU: 9000, HCA: fmt.Sprintf("cxi%d", n), PCI: fmt.Sprintf("000%d:01:00.0", n)}, fmt.Sprintf("10.253.%d.%d/16", n, i+1))
	}
	b.link(Link{Name: "docker0", Kind: "bridge"}, "172.17.0.1/16")
	for n := len(b.inv.Links); n < 64; n++ {
		if n%2 == 0 {
			b.link(Link{Name: fmt.Sprintf("veth%d", n), Kind: "veth", Master: "docker0", Speed: 10000})
		} else {
			b.link(Link{Name: fmt.Sprintf("eth0.%d", n), Kind: "vlan", Parent: "eth0"}, fmt.Sprintf("10.%d.0.%d/24", 60+n, i+1))
		}
	}
	b.rule(100, fmt.Sprintf("10.253.0.%d", i+1), 7).routeTable(7, "10.253.0.0/16", "hsn0", "")
	for n := 0; len(b.inv.Routes) < 10000; n++ {
		dst := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(64 + n>>14), byte(n >> 6), byte(n << 2)}), 30)
		b.route(dst.Masked().String(), "eth0", "10.0.255.253", "")
		if n%4 == 0 {
			b.inv.Routes[len(b.inv.Routes)-1].Table = 7
		}
	}
	return b.done(t)
}

// TestCrowdedHost chooses on a host with 64 links and 10,000 routes. The benchmarks below
// measure the time, which is a few milliseconds.
func TestCrowdedHost(t *testing.T) {
	inv, other := crowdedHost(t, 0), crowdedHost(t, 1)
	if len(inv.Links) != 64 || len(inv.Routes) != 10000 {
		t.Fatalf("%d links, %d routes", len(inv.Links), len(inv.Routes))
	}
	if c, err := Choose(inv, addrs([]string{"10.253.0.2"}), Request{}); err != nil || c.Interface != "hsn0" {
		t.Errorf("Choose: got %s, %v, want hsn0", c.Interface, err)
	}
	if cs, err := Agree([]Inventory{inv, other}, Request{}); err != nil || cs[0].Interface != "hsn0" {
		t.Errorf("Agree: got %v, %v, want hsn0", cs, err)
	}
}

// BenchmarkChooseCrowded measures the selection of an interface on a host with many interfaces and
// routes.
func BenchmarkChooseCrowded(b *testing.B) {
	inv, peers := crowdedHost(b, 0), addrs([]string{"10.253.0.2"})
	for b.Loop() {
		if _, err := Choose(inv, peers, Request{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAgreeTwoCrowded measures the agreement of two hosts with many interfaces and routes.
func BenchmarkAgreeTwoCrowded(b *testing.B) {
	nodes := []Inventory{crowdedHost(b, 0), crowdedHost(b, 1)}
	for b.Loop() {
		if _, err := Agree(nodes, Request{}); err != nil {
			b.Fatal(err)
		}
	}
}
