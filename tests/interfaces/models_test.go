package interfaces

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

// TestNCCL checks that the model selects the interfaces that are recorded for NCCL's real rule, on
// every collected host and for both generations.
func TestNCCL(t *testing.T) {
	for _, c := range load(t) {
		for _, tt := range []struct {
			name string
			pick func(Pair) Pick
			want []string
		}{{"to 2.27", NCCL227, c.NCCL.LE227}, {"from 2.28", NCCL228, c.NCCL.GE228}} {
			var got []string
			for _, u := range tt.pick(c.pair).Uses {
				got = append(got, u.Link+"="+u.Addr.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: NCCL %s: %q, want %q", c.ID, tt.name, got, tt.want)
			}
		}
	}
}

// TestModels checks which interfaces the libraries would use on recorded hosts, according to the
// models of their selection.
func TestModels(t *testing.T) {
	tests := []struct {
		name string
		id   string
		pick func(Pair) Pick
		want []string // interface=address
		fail string
	}{
		{"a name in DNS is the default route's address", "15-bond-vlan-qinq", Gloo(InDNS), []string{"bond0.2973=10.0.106.189"}, ""},
		{"a name at 127.0.1.1 can be bound, and is", "15-bond-vlan-qinq", Gloo(InHosts), []string{"lo=127.0.1.1"}, ""},
		{"no name falls back to loopback", "28-single-node-offline", Gloo(InDNS), []string{"lo=127.0.0.1"}, ""},
		{"a name of another host cannot be bound", "02-inside-container-eth0-is-veth", Gloo(func(netif.Inventory) netip.Addr {
			return netip.MustParseAddr("10.0.0.1")
		}), []string{"lo=127.0.0.1"}, ""},

		{"the default route", "09-ipoib-good", Ray, []string{"eno1=10.1.0.7"}, ""},
		{"the default route's source, on lo", "20-l3-bgp-unnumbered", Ray, []string{"lo=192.0.2.77"}, ""},

		{"the fastest of one subnet", "04-two-nics-same-subnet", UCX, []string{"enp37s0f0=192.168.5.15"}, ""},
		{"no bridges, whatever speed they tell", "30-firecracker-ci", UCX, []string{"eth0=192.0.2.2"}, ""},
		{"no link-local addresses", "08-ib0-linklocal-v6-only", UCX, []string{"bond0=10.30.0.11"}, ""},
		{"a tie is not for the default route", "19-gcp-a3-tcpx", UCX, []string{"enp12s0=10.11.0.5"}, ""},
		{"loopback on one host", "28-single-node-offline", UCX, []string{"lo=127.0.0.1"}, ""},
		{"no loopback to another", "20-l3-bgp-unnumbered", UCX, nil, "Destination is unreachable"},

		{"a bridge without a carrier", "05-libvirt-virbr0", OpenMPI, []string{"virbr0=192.168.122.1", "eno1=10.20.0.11"}, ""},
		{"no link that is off, no loopback", "17-aws-p5-efa", OpenMPI, []string{"enp71s0=10.1.46.161", "docker0=172.17.0.1"}, ""},
		{"an address on lo goes with it", "20-l3-bgp-unnumbered", OpenMPI, nil, "no interface has an IPv4 address outside 127.0.0.1/8"},
		{"only what the other host has too", "25-names-differ-nodeA", OpenMPI, []string{"xgbe0=10.9.0.1"}, ""},

		{"bridges answer to themselves", "30-firecracker-ci", Horovod, []string{"eth0=192.0.2.2"}, ""},
		{"the answer must come to the same interface", "04-two-nics-same-subnet", Horovod, []string{"eno1=192.168.3.15"}, ""},
		{"a probe by the second address, a use of the first", "20-l3-bgp-unnumbered", Horovod, []string{"lo=127.0.0.1"}, ""},
		{"names must be the same", "25-names-differ-nodeA", Horovod, nil, "Unable to find a set of common task-to-task communication interfaces"},
		{"loopback on one host", "28-single-node-offline", Horovod, []string{"lo=127.0.0.1"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pick := tt.pick(find(t, tt.id).pair)
			var got []string
			for _, u := range pick.Uses {
				got = append(got, u.Link+"="+u.Addr.Addr().String())
			}
			if !slices.Equal(got, tt.want) || pick.Failed != tt.fail {
				t.Errorf("%s: %q (%q), want %q (%q)", tt.id, got, pick.Failed, tt.want, tt.fail)
			}
		})
	}
}

// TestAgreed checks that ddpbatch selects the right interface on every collected host if it has one
// address of the other host. From only the two inventories it selects a network that works. On two
// hosts it is not the network that a user would select; docs/network.md names these hosts.
func TestAgreed(t *testing.T) {
	faster := map[string]bool{"13-dgx-h100": true, "14-roce-per-rail-subnets": true}
	for _, c := range load(t) {
		if v := c.pair.Evaluate(WithPeer(c.pair), c.right); v.Outcome != Right {
			t.Errorf("%s: told the other's address: %s: %s", c.ID, v.Outcome, v.Why)
		}
		want := Right
		if faster[c.ID] {
			want = Works
		}
		if v := c.pair.Evaluate(Agreed(c.pair), c.right); v.Outcome != want {
			t.Errorf("%s: agreed: %s: %s, want %s", c.ID, v.Outcome, v.Why, want)
		}
	}
}

// TestEvaluate checks the result for a selected interface: right, slower, at risk, or unusable.
func TestEvaluate(t *testing.T) {
	use := func(link, addr string) Use { return Use{link, netip.MustParsePrefix(addr)} }
	tests := []struct {
		name string
		id   string
		pick Pick
		want Evaluation
	}{
		{"the right one", "09-ipoib-good", Pick{Uses: []Use{use("ib0", "10.149.0.7/16")}}, Evaluation{Right, "ib0", ""}},
		{"a slower one", "09-ipoib-good", Pick{Uses: []Use{use("eno1", "10.1.0.7/16")}},
			Evaluation{Works, "eno1", "eno1 at 1 Gb/s, ib0 has 200 Gb/s"}},
		{"loopback", "09-ipoib-good", Pick{Uses: []Use{use("lo", "127.0.0.1/8")}},
			Evaluation{Fails, "lo", "lo: 127.0.0.1 is the loopback address"}},
		{"another address of loopback", "09-ipoib-good", Gloo(InHosts)(find(t, "09-ipoib-good").pair),
			Evaluation{Fails, "lo", "lo: 127.0.1.1 is the loopback address"}},
		{"a second that may carry data and leads nowhere", "05-libvirt-virbr0",
			Pick{Uses: []Use{use("eno1", "10.20.0.11/16"), use("virbr0", "192.168.122.1/24")}, Spread: Devices},
			Evaluation{Risk, "virbr0", "also uses virbr0: 192.168.122.1 is on every host"}},
		{"a second that carries data and leads nowhere", "05-libvirt-virbr0",
			Pick{Uses: []Use{use("eno1", "10.20.0.11/16"), use("virbr0", "192.168.122.1/24")}, Spread: All},
			Evaluation{Fails, "virbr0", "also uses virbr0: 192.168.122.1 is on every host"}},
		{"a second that is not used", "05-libvirt-virbr0",
			Pick{Uses: []Use{use("eno1", "10.20.0.11/16"), use("virbr0", "192.168.122.1/24")}}, Evaluation{Right, "eno1", ""}},
		{"a second that a router may lead to", "07-k8s-cilium-sriov-ibs",
			Pick{Uses: []Use{use("enp90s0np0", "10.168.192.89/24"), use("cilium_host", "10.0.21.95/32")}, Spread: All},
			Evaluation{Risk, "cilium_host", "also uses cilium_host: the route to 10.0.21.96 leaves by enp90s0np0"}},
		{"all of several that work", "09-ipoib-good",
			Pick{Uses: []Use{use("ib0", "10.149.0.7/16"), use("eno1", "10.1.0.7/16")}, Spread: All},
			Evaluation{Works, "all", "uses all of them: ib0, eno1"}},
		{"link-local", "08-ib0-linklocal-v6-only", Pick{Uses: []Use{use("ib0", "fe80::a288:c203:d2:aaf2/64")}},
			Evaluation{Fails, "ib0", "ib0: only a link-local IPv6 address, which has no route"}},
		{"nothing", "09-ipoib-good", Pick{Failed: "why"}, Evaluation{Fails, "none", "why"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := find(t, tt.id)
			if got := c.pair.Evaluate(tt.pick, c.right); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestNewPair checks that the other host has different addresses, except for the addresses that
// every host assigns to itself.
func TestNewPair(t *testing.T) {
	tests := []struct{ id, link, want string }{
		{"05-libvirt-virbr0", "eno1", "10.20.0.12"},                         // the peer
		{"05-libvirt-virbr0", "virbr0", "192.168.122.1"},                    // no device is a port of the bridge
		{"04-two-nics-same-subnet", "eno1", "192.168.3.16"},                 // the next address in the subnet
		{"13-dgx-h100", "bmc_redfish0", "169.254.0.18"},                     // link-local IPv4
		{"14-roce-per-rail-subnets", "eth0", "29.80.4.223"},                 // the next /31
		{"19-gcp-a3-tcpx", "enp6s0", "10.10.0.6"},                           // the next /32
		{"20-l3-bgp-unnumbered", "lo", "127.0.0.1"},                         // loopback
		{"25-names-differ-nodeA", "xgbe4", "10.9.0.2"},                      // as reported
		{"01-docker-veth-host", "veth75fa783", "fe80::14ad:64ff:fe64:b31f"}, // generated by the host
	}
	for _, tt := range tests {
		l := linkNamed(find(t, tt.id).pair.There, tt.link)
		if len(l.Addrs) == 0 || l.Addrs[0].Addr().String() != tt.want {
			t.Errorf("%s: %s there has %v, want %s", tt.id, tt.link, l.Addrs, tt.want)
		}
	}
	lo := linkNamed(find(t, "20-l3-bgp-unnumbered").pair.There, "lo")
	if got := lo.Addrs[1].Addr().String(); got != "192.0.2.78" {
		t.Errorf("the second address of lo there is %s, want the peer's", got)
	}
	for _, own := range []string{"10.0.0.254/24", "10.0.0.253/24"} {
		if a := next(netip.MustParsePrefix(own)); !netip.MustParsePrefix(own).Contains(a) || a.As4()[3] == 255 {
			t.Errorf("beside %s: %s", own, a)
		}
	}
}

// TestRoute checks the interface and source address that the models find in recorded routing
// tables.
func TestRoute(t *testing.T) {
	tests := []struct{ id, to, dev, src string }{
		{"04-two-nics-same-subnet", "192.168.5.13", "eno1", "192.168.3.15"}, // first of two equal routes
		{"09-ipoib-good", "10.149.0.8", "ib0", "10.149.0.7"},                // longest prefix
		{"09-ipoib-good", "8.8.8.8", "eno1", "10.1.0.7"},
		{"12-slingshot-4xhsn", "10.253.3.13", "hsn0", "10.253.0.12"},
		{"14-roce-per-rail-subnets", "29.80.4.220", "eth0", "29.80.4.221"}, // not listed, but the link's own subnet
		{"19-gcp-a3-tcpx", "10.10.0.6", "enp6s0", "10.10.0.5"},             // no source listed
		{"28-single-node-offline", "8.8.8.8", "", "invalid IP"},
	}
	for _, tt := range tests {
		dev, src := route(find(t, tt.id).pair.Here, netip.MustParseAddr(tt.to))
		if dev != tt.dev || src.String() != tt.src {
			t.Errorf("%s: to %s: %s %s, want %s %s", tt.id, tt.to, dev, src, tt.dev, tt.src)
		}
	}
}

// TestReplaceBlock checks that only the marked block of a document is replaced, and that missing
// markers are an error.
func TestReplaceBlock(t *testing.T) {
	text := "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n"
	got, err := replaceBlock(text, "x", "new\n")
	if want := "a\n<!-- generated: x -->\nnew\n<!-- end: x -->\nb\n"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, bad := range []string{"", "<!-- generated: x -->\n", "<!-- end: x -->\n"} {
		if _, err := replaceBlock(bad, "x", ""); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
