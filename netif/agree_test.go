package netif

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// fabricHost has a slow management NIC and a fast RDMA NIC.
func fabricHost(name, mgmt, fabric string) *hostSpec {
	return newHostSpec(name).
		link(Link{Name: "eno1", PCI: "0000:04:00.0", Speed: 1000}, mgmt).
		link(Link{Name: "ib0", Kind: "ipoib", ARPHRD: "infiniband", PCI: "0000:3b:00.0", HCA: "mlx5_0", Speed: 200000, MTU: 4092}, fabric)
}

// TestAgree checks which interface and address all hosts of a job use, with warnings about hosts
// that prevent a better choice.
func TestAgree(t *testing.T) {
	tests := []struct {
		name  string
		nodes []*hostSpec
		req   Request
		want  []string // "interface address" of each node
		warn  string   // in a warning of the first node; empty: no warning
	}{
		{
			name:  "the larger MTU where nothing else differs, never the address that all have",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2), slurmHost(3), slurmHost(4)},
			want:  []string{"hsn0 10.20.0.2", "hsn0 10.20.0.3", "hsn0 10.20.0.4", "hsn0 10.20.0.5"},
		},
		{
			name:  "the interface that was asked for",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2)},
			req:   Request{Interface: "eth0"},
			want:  []string{"eth0 10.10.0.2", "eth0 10.10.0.3"},
		},
		{
			name:  "none that was excluded",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2)},
			req:   Request{Interface: "auto", Exclude: []string{"hsn0"}},
			want:  []string{"eth0 10.10.0.2", "eth0 10.10.0.3"},
		},
		{
			name:  "RDMA and speed, though the default route is elsewhere",
			nodes: []*hostSpec{fabricHost("a", "10.1.0.7/16", "10.149.0.7/16").route("0.0.0.0/0", "eno1", "10.1.255.254", ""), fabricHost("b", "10.1.0.8/16", "10.149.0.8/16")},
			want:  []string{"ib0 10.149.0.7", "ib0 10.149.0.8"},
		},
		{
			name: "names that differ",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "xgbe0"}, "10.9.0.1/24").link(Link{Name: "xgbe4"}, "10.9.4.1/24"),
				newHostSpec("b").link(Link{Name: "xgbe0"}, "10.9.7.1/24").link(Link{Name: "xgbe4"}, "10.9.0.2/24"),
			},
			want: []string{"xgbe0 10.9.0.1", "xgbe4 10.9.0.2"},
		},
		{
			name: "IPoIB without an address on one host: NCCL's default would hang",
			nodes: []*hostSpec{
				newHostSpec("gh1").link(Link{Name: "bond0", Kind: "bond", MTU: 9000}, "10.30.0.11/24").
					link(Link{Name: "ib0", ARPHRD: "infiniband", HCA: "mlx5_2", Speed: 400000}, "fe80::a288:c203:d2:aaf2/64"),
				newHostSpec("gh2").link(Link{Name: "bond0", Kind: "bond", MTU: 9000}, "10.30.0.12/24").
					link(Link{Name: "ib0", ARPHRD: "infiniband", HCA: "mlx5_2", Speed: 400000, Oper: "down"}),
			},
			want: []string{"bond0 10.30.0.11", "bond0 10.30.0.12"},
		},
		{
			name:  "addresses without a subnet, joined by routes",
			nodes: []*hostSpec{cloudHost(1), cloudHost(2), cloudHost(3)},
			want:  []string{"eth1 10.11.0.1", "eth1 10.11.0.2", "eth1 10.11.0.3"},
		},
		{
			name:  "a subnet for each rack, joined by routes",
			nodes: []*hostSpec{rackHost(0, 1), rackHost(0, 2), rackHost(1, 1), rackHost(1, 2)},
			want:  []string{"hsn0 10.1.0.1", "hsn0 10.1.0.2", "hsn0 10.1.1.1", "hsn0 10.1.1.2"},
		},
		{
			name:  "addresses on the loopback of hosts that speak BGP",
			nodes: []*hostSpec{bgpHost("a", "192.0.2.77"), bgpHost("b", "192.0.2.78")},
			want:  []string{"lo 192.0.2.77", "lo 192.0.2.78"},
			warn:  "192.0.2.77 is on lo, and its packets leave by lan0 and lan1; programs that receive only the name lo use a different address",
		},
		{
			name: "several interfaces in one subnet: the one that packets leave by",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "hsn0"}, "10.2.0.1/16").link(Link{Name: "hsn1"}, "10.2.1.1/16"),
				newHostSpec("b").link(Link{Name: "hsn0"}, "10.2.0.2/16").link(Link{Name: "hsn1"}, "10.2.1.2/16"),
			},
			want: []string{"hsn0 10.2.0.1", "hsn0 10.2.0.2"},
		},
		{
			name: "two NICs in one subnet, the faster listed last",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "eno1", Speed: 1000}, "192.168.3.15/20").link(Link{Name: "enp37s0", Speed: 10000}, "192.168.5.15/20"),
				newHostSpec("b").link(Link{Name: "eno1", Speed: 1000}, "192.168.3.13/20").link(Link{Name: "enp37s0", Speed: 10000}, "192.168.5.13/20"),
			},
			want: []string{"enp37s0 192.168.5.15", "enp37s0 192.168.5.13"},
			warn: "asymmetric route: packets to 192.168.5.13 leave by eno1 unless the socket is bound to the device enp37s0",
		},
		{
			name: "hardware before an overlay with larger packets",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "ens5"}, "10.0.0.1/24").link(Link{Name: "wg0", Kind: "wireguard", ARPHRD: "none", MTU: 9000}, "10.99.0.1/24"),
				newHostSpec("b").link(Link{Name: "ens5"}, "10.0.0.2/24").link(Link{Name: "wg0", Kind: "wireguard", ARPHRD: "none", MTU: 9000}, "10.99.0.2/24"),
			},
			want: []string{"ens5 10.0.0.1", "ens5 10.0.0.2"},
		},
		{
			name: "an overlay if it is all they share",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "ens5"}, "10.0.0.1/24").link(Link{Name: "wg0", Kind: "wireguard", ARPHRD: "none"}, "10.99.0.1/24"),
				newHostSpec("b").link(Link{Name: "ens5"}, "10.0.1.1/24").link(Link{Name: "wg0", Kind: "wireguard", ARPHRD: "none"}, "10.99.0.2/24"),
			},
			want: []string{"wg0 10.99.0.1", "wg0 10.99.0.2"},
		},
		{
			name: "IPv6 where a host has no IPv4",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "eth0"}, "10.0.0.1/24", "fd00::1/64"),
				newHostSpec("b").link(Link{Name: "eth0"}, "fd00::2/64"),
			},
			want: []string{"eth0 fd00::1", "eth0 fd00::2"},
		},
		{
			name: "IPv6 on request",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "eth0"}, "10.0.0.1/24", "fd00::1/64"),
				newHostSpec("b").link(Link{Name: "eth0"}, "10.0.0.2/24", "fd00::2/64"),
			},
			req:  Request{Family: IPv6},
			want: []string{"eth0 fd00::1", "eth0 fd00::2"},
		},
		{
			name: "an address that was asked for though it is link-local: two hosts on one cable",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "cx7"}, "169.254.1.1/16").route("169.254.0.0/16", "cx7", "", "169.254.1.1"),
				newHostSpec("b").link(Link{Name: "cx7"}, "169.254.1.2/16").route("169.254.0.0/16", "cx7", "", "169.254.1.2"),
			},
			req:  Request{Interface: "cx7"},
			want: []string{"cx7 169.254.1.1", "cx7 169.254.1.2"},
		},
		{
			name:  "one host: the loopback",
			nodes: []*hostSpec{slurmHost(1)},
			want:  []string{"lo 127.0.0.1"},
		},
		{
			name: "one of three hosts lacks the better network: the other, with a warning",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2), newHostSpec("n3").
				link(Link{Name: "eth0", Kind: "veth"}, "10.10.0.4/16").link(Link{Name: "hsn0", Kind: "veth", MTU: 9000, Oper: "down", Flags: Up}, "10.20.0.4/16")},
			want: []string{"eth0 10.10.0.2", "eth0 10.10.0.3", "eth0 10.10.0.4"},
			warn: "10.20.0.0/16 would be better (mtu 9000) but does not reach every host: hsn0 on n3 is unusable: no carrier",
		},
		{
			name:  "the first of three hosts lacks it",
			nodes: []*hostSpec{newHostSpec("n0").link(Link{Name: "eth0", Kind: "veth"}, "10.10.0.1/16"), slurmHost(1), slurmHost(2)},
			want:  []string{"eth0 10.10.0.1", "eth0 10.10.0.2", "eth0 10.10.0.3"},
			warn:  "10.20.0.0/16 would be better (mtu 9000) but does not reach every host: n0 has no address in 10.20.0.0/16",
		},
		{
			name: "a route that drops packets cuts a network",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2).route("10.20.0.2/32", "", "", ""),
				slurmHost(3)},
			want: []string{"eth0 10.10.0.2", "eth0 10.10.0.3", "eth0 10.10.0.4"},
			warn: "10.20.0.0/16 would be better (mtu 9000) but does not reach every host: on n2, the route to 10.20.0.2 drops packets (blackhole or unreachable 10.20.0.2/32)",
		},
		{
			name: "a route to a part of the network leads elsewhere",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2),
				slurmHost(3).route("10.20.0.3/32", "eth0", "10.10.255.254", "")},
			want: []string{"eth0 10.10.0.2", "eth0 10.10.0.3", "eth0 10.10.0.4"},
			warn: "10.20.0.0/16 would be better (mtu 9000) but does not reach every host: on n3, the route to 10.20.0.3 leaves by eth0 (the address of n2)",
		},
		{
			name: "the address that is the host's own, not the one that moves between hosts",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "eth0"}, "10.0.0.100/24", "10.0.0.1/24"),
				newHostSpec("b").link(Link{Name: "eth0"}, "10.0.0.100/24", "10.0.0.2/24"),
			},
			want: []string{"eth0 10.0.0.1", "eth0 10.0.0.2"},
		},
		{
			name: "a network is as good as on its worst host: RDMA on one only is none",
			nodes: []*hostSpec{
				newHostSpec("a").link(Link{Name: "eno1", Speed: 25000}, "10.0.0.1/24").link(Link{Name: "eth1", HCA: "mlx5_0", Speed: 10000}, "10.1.0.1/24"),
				newHostSpec("b").link(Link{Name: "eno1", Speed: 25000}, "10.0.0.2/24").link(Link{Name: "eth1", Speed: 10000}, "10.1.0.2/24"),
			},
			want: []string{"eno1 10.0.0.1", "eno1 10.0.0.2"},
		},
		{
			name:  "and an address that two links carry as good as the worse",
			nodes: []*hostSpec{slowLan(bgpHost("a", "192.0.2.77")), slowLan(bgpHost("b", "192.0.2.78"))},
			want:  []string{"eno1 10.5.0.1", "eno1 10.5.0.2"},
		},
		{
			name: "packets of different size",
			nodes: []*hostSpec{newHostSpec("a").link(Link{Name: "eth0", MTU: 9000}, "10.4.0.4/24"),
				newHostSpec("b").link(Link{Name: "eth0"}, "10.4.0.5/24"), newHostSpec("c").link(Link{Name: "eth0"}, "10.4.0.6/24")},
			want: []string{"eth0 10.4.0.4", "eth0 10.4.0.5", "eth0 10.4.0.6"},
			warn: "mtu differs: 9000 on a (eth0), 1500 on b (eth0), less than the largest on 2 hosts",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []Inventory
			for _, n := range tt.nodes {
				nodes = append(nodes, n.done(t))
			}
			choices, err := Agree(nodes, tt.req)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range choices {
				if got := c.Interface + " " + c.Addr.String(); got != tt.want[i] {
					t.Errorf("node %d uses %s, want %s", i, got, tt.want[i])
				}
				if c.Why == "" || len(c.Rejected) != len(nodes[i].Links)-1 {
					t.Errorf("node %d: why %q, %d rejected of %d links", i, c.Why, len(c.Rejected), len(nodes[i].Links))
				}
				for _, r := range c.Rejected {
					if r.Reason == "" {
						t.Errorf("node %d: no reason against %s", i, r.Interface)
					}
				}
			}
			got := strings.Join(choices[0].Warnings, "\n")
			if tt.warn == "" && got != "" || !strings.HasPrefix(got, tt.warn) {
				t.Errorf("warnings %q, want %q", got, tt.warn)
			}
		})
	}
}

// TestAgreeRefuses checks the errors and hints if no network connects all hosts.
func TestAgreeRefuses(t *testing.T) {
	same := func(name string) *hostSpec {
		return newHostSpec(name).link(Link{Name: "virbr0", Kind: "bridge"}, "192.168.122.1/24")
	}
	tests := []struct {
		name  string
		nodes []*hostSpec
		req   Request
		want  string
		isEnd bool // want is the end of the error
		hint  string
	}{
		{
			name: "one host is on another network",
			nodes: []*hostSpec{fabricHost("a", "10.1.0.1/24", "10.2.0.1/24"), fabricHost("b", "10.1.0.2/24", "10.2.0.2/24"),
				newHostSpec("c").link(Link{Name: "eth0"}, "10.3.0.3/24")},
			want: "choose a common network: no network reaches all 3 hosts: 10.2.0.0/24 reaches 2 of them, but not c: c has no address in 10.2.0.0/24; c has 10.3.0.3/24 (eth0)",
			hint: "run `ip -br addr` on c",
		},
		{
			name: "the first host is the odd one",
			nodes: []*hostSpec{newHostSpec("a").link(Link{Name: "eth0"}, "10.3.0.3/24"),
				newHostSpec("b").link(Link{Name: "eth0"}, "10.1.0.2/24"), newHostSpec("c").link(Link{Name: "eth0"}, "10.1.0.3/24"),
				newHostSpec("d").link(Link{Name: "eth0"}, "10.1.0.4/24")},
			want: "10.1.0.0/24 reaches 3 of them, but not a: a has no address in 10.1.0.0/24; a has 10.3.0.3/24 (eth0)",
			hint: "run `ip -br addr` on a",
		},
		{
			name:  "nothing but addresses that all have",
			nodes: []*hostSpec{same("a"), same("b")},
			want:  "no IPv4 network: a has only virbr0 (192.168.122.1 is also an address of b, so it does not lead to another host); no usable interface on b either",
			hint:  "run `ip -br addr` on a",
		},
		{
			name:  "three hosts without an interface",
			nodes: []*hostSpec{slurmHost(1), newHostSpec("n2"), newHostSpec("n3"), newHostSpec("n4")},
			want:  "no IPv4 network: n2 has no interface except the loopback; no usable interface on n3 and n4 either",
		},
		{
			name:  "an interface that is down",
			nodes: []*hostSpec{slurmHost(1), newHostSpec("n2").link(Link{Name: "eth0", Oper: "down"}, "10.10.0.3/16")},
			want:  "no IPv4 network: n2 has only eth0 (administratively down)",
			isEnd: true,
			hint:  "run `ip -br addr` on n2",
		},
		{
			name:  "asked for and absent",
			nodes: []*hostSpec{slurmHost(1), newHostSpec("n2").link(Link{Name: "eth0"}, "10.10.0.3/16")},
			req:   Request{Interface: "hsn0"},
			want:  `n2: no interface "hsn0"`,
			hint:  "use one of lo and eth0",
		},
		{
			name:  "asked for, and the same address everywhere",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2)},
			req:   Request{Interface: "docker0"},
			want:  `n1: requested interface "docker0": 172.17.0.1 is also an address of n2, so it does not lead to another host`,
			hint:  "request an interface",
		},
		{
			name:  "asked for the loopback",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2)},
			req:   Request{Interface: "lo"},
			want:  `n1: requested interface "lo" is unusable: loopback: reaches this host only`,
			hint:  "10.10.0.2/16 (eth0) and 10.20.0.2/16 (hsn0)",
		},
		{
			name: "asked for, and no route between them",
			nodes: []*hostSpec{newHostSpec("a").link(Link{Name: "eth0"}, "10.1.0.1/24"),
				newHostSpec("b").link(Link{Name: "eth0"}, "10.2.0.1/24")},
			req:  Request{Interface: "eth0"},
			want: "no network connects any two of the 2 hosts: a has 10.1.0.1/24 (eth0), b has 10.2.0.1/24 (eth0)",
			hint: "run `ip -br addr` on both",
		},
		{
			name:  "asked for and excluded",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2)},
			req:   Request{Interface: "hsn0", Exclude: []string{"hsn0"}},
			want:  `requested interface "hsn0" is unusable: excluded`,
		},
		{
			name:  "an IP version that no host has",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2)},
			req:   Request{Family: IPv6},
			want:  "no IPv6 network: n1 has only eth0 (no IPv6 address, only 10.10.0.2)",
		},
		{
			name: "hint about IPv6 for hosts without a common IPv4 network",
			nodes: []*hostSpec{newHostSpec("a").link(Link{Name: "eth0"}, "fd00:1::1/64"),
				newHostSpec("b").link(Link{Name: "eth0"}, "fd00:2::1/64")},
			want: "no network connects any two of the 2 hosts: a has fd00:1::1/64 (eth0), b has fd00:2::1/64 (eth0)",
		},
		{
			name:  "an unknown family",
			nodes: []*hostSpec{slurmHost(1), slurmHost(2)},
			req:   Request{Family: "ipx"},
			want:  `unknown address family "ipx"`,
			hint:  "use auto, ipv4, or ipv6",
		},
		{
			name:  "duplicate host",
			nodes: []*hostSpec{slurmHost(1), slurmHost(1)},
			want:  `duplicate host "n1"`,
		},
		{name: "no host", want: "no hosts"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []Inventory
			for _, n := range tt.nodes {
				nodes = append(nodes, n.done(t))
			}
			choices, err := Agree(nodes, tt.req)
			if err == nil {
				t.Fatalf("agreed on %s", choices[0].Interface)
			}
			if !strings.Contains(err.Error(), tt.want) || tt.isEnd && !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("error\n%q, want\n%q", err, tt.want)
			}
			if got := hints.Of(err); !strings.Contains(got, tt.hint) {
				t.Errorf("hint %q, want %q", got, tt.hint)
			}
		})
	}
}
