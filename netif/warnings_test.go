package netif

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// mgmtHost has only the management network. The functions below extend it.
func mgmtHost(i int) *hostSpec {
	return newHostSpec(fmt.Sprintf("n%d", i)).link(Link{Name: "eth0", Kind: "veth"}, fmt.Sprintf("10.10.0.%d/16", i+1))
}

// fabricOf adds a fast network. Its MTU is 9000 if mtu is 0.
func fabricOf(i, mtu int) *hostSpec {
	if mtu == 0 {
		mtu = 9000
	}
	return mgmtHost(i).link(Link{Name: "hsn0", Kind: "veth", MTU: mtu}, fmt.Sprintf("10.20.0.%d/16", i+1)).
		route("0.0.0.0/0", "eth0", "10.10.255.254", "")
}

// manyNetworks adds as many networks as are searched for among the last hosts.
func manyNetworks(b *hostSpec, i int) *hostSpec {
	for k := range maxIncompleteNetworks {
		b.link(Link{Name: fmt.Sprintf("eth%d", k+1), Kind: "veth"}, fmt.Sprintf("10.%d.0.%d/16", 30+k, i))
	}
	return b
}

// localNetworks adds as many bridges without a device.
func localNetworks(b *hostSpec, i int) *hostSpec {
	for k := range maxIncompleteNetworks {
		b.link(Link{Name: fmt.Sprintf("br%d", k), Kind: "bridge"}, fmt.Sprintf("10.%d.0.%d/16", 40+k, i))
	}
	return b
}

// TestMissedWarnings checks the warning about a better network that a host does not reach.
func TestMissedWarnings(t *testing.T) {
	dead := func(i int, addrs ...string) *hostSpec {
		return mgmtHost(i).link(Link{Name: "hsn0", Kind: "veth", MTU: 9000, Oper: "down"}, addrs...)
	}
	const better = "10.20.0.0/16 would be better (mtu 9000) but does not reach every host: "
	tests := []struct {
		name  string
		nodes []*hostSpec
		req   Request
		want  []string
	}{
		{"two hosts, one administratively down", []*hostSpec{fabricOf(1, 0), dead(2, "10.20.0.3/16")}, Request{},
			[]string{better + "hsn0 on n2 is unusable: administratively down"}},
		{"the first of two", []*hostSpec{dead(1, "10.20.0.2/16"), fabricOf(2, 0)}, Request{},
			[]string{better + "hsn0 on n1 is unusable: administratively down"}},
		{"administratively down and without its address", []*hostSpec{fabricOf(1, 0), dead(2)}, Request{},
			[]string{better + "hsn0 on n2 is unusable: administratively down"}},
		{"without an address", []*hostSpec{fabricOf(1, 0), mgmtHost(2).link(Link{Name: "hsn0", Kind: "veth"})}, Request{},
			[]string{better + "hsn0 on n2 is unusable: no address"}},
		{"another name, both with RDMA", []*hostSpec{fabricHost("a", "10.1.0.1/24", "10.2.0.1/24"), newHostSpec("b").link(Link{Name: "eno1", PCI: "0000:04:00.0", Speed: 1000}, "10.1.0.2/24").
			link(Link{Name: "ib3", Kind: "ipoib", ARPHRD: "infiniband", HCA: "mlx5_0", Oper: "down", Flags: Up})}, Request{},
			[]string{"10.2.0.0/24 would be better (RDMA) but does not reach every host: ib3 on b is unusable: no carrier: no cable is connected, or the other end is down"}},
		{"no route between two", []*hostSpec{fabricOf(1, 0), fabricOf(2, 0).route("10.20.0.2/32", "", "", "")}, Request{},
			[]string{better + "on n2, the route to 10.20.0.2 drops packets (blackhole or unreachable 10.20.0.2/32)"}},
		{"half of four", []*hostSpec{fabricOf(1, 0), fabricOf(2, 0), mgmtHost(3), mgmtHost(4)}, Request{},
			[]string{better + "n3 has no address in 10.20.0.0/16; n4 has no address in 10.20.0.0/16"}},
		{"the first two of five", []*hostSpec{mgmtHost(1), dead(2), fabricOf(3, 0), fabricOf(4, 0), fabricOf(5, 0)}, Request{},
			[]string{better + "n1 has no address in 10.20.0.0/16; hsn0 on n2 is unusable: administratively down"}},
		{"most hosts", []*hostSpec{mgmtHost(1), mgmtHost(2), dead(3), mgmtHost(4), mgmtHost(5), fabricOf(6, 0)}, Request{},
			[]string{better + "n1 has no address in 10.20.0.0/16; n2 has no address in 10.20.0.0/16; hsn0 on n3 is unusable: administratively down; and 2 more of the 6 hosts lack it"}},
		{"the last has a network of its own", []*hostSpec{mgmtHost(1), mgmtHost(2), fabricOf(3, 0)}, Request{}, nil},
		{"the first has one", []*hostSpec{fabricOf(1, 0), mgmtHost(2)}, Request{}, nil},
		{"a bridge for containers", []*hostSpec{
			mgmtHost(1).link(Link{Name: "docker0", Kind: "bridge", MTU: 9000}, "172.17.0.1/16"),
			mgmtHost(2).link(Link{Name: "docker0", Kind: "bridge", MTU: 9000, Oper: "down", Flags: Up}, "172.17.0.1/16")}, Request{}, nil},
		{"bridges inside more hosts", []*hostSpec{
			mgmtHost(1), mgmtHost(2), localNetworks(fabricOf(3, 0), 3), localNetworks(fabricOf(4, 0), 4), localNetworks(mgmtHost(5), 5)}, Request{},
			[]string{better + "n1 has no address in 10.20.0.0/16; n2 has no address in 10.20.0.0/16; n5 has no address in 10.20.0.0/16"}},
		{"one that is missing after many networks of all hosts", []*hostSpec{
			manyNetworks(mgmtHost(1), 1), manyNetworks(mgmtHost(2), 2),
			manyNetworks(mgmtHost(3), 3).link(Link{Name: "hsn0", Kind: "veth", MTU: 9000}, "10.20.0.3/16"), manyNetworks(mgmtHost(4), 4).link(Link{Name: "hsn0", Kind: "veth", MTU: 9000}, "10.20.0.4/16")}, Request{},
			[]string{better + "n1 has no address in 10.20.0.0/16; n2 has no address in 10.20.0.0/16"}},
		{"a bridge with addresses that differ", []*hostSpec{
			mgmtHost(1).link(Link{Name: "br0", Kind: "bridge", MTU: 9000}, "172.18.1.1/16"),
			mgmtHost(2).link(Link{Name: "br0", Kind: "bridge", MTU: 9000, Oper: "down"}, "172.18.2.1/16")}, Request{}, nil},
		{"one that is no better", []*hostSpec{fabricOf(1, 1500), dead(2, "10.20.0.3/16")}, Request{}, nil},
		{"requested by name", []*hostSpec{fabricOf(1, 0), dead(2, "10.20.0.3/16")}, Request{Interface: "eth0"}, nil},
		{"excluded", []*hostSpec{fabricOf(1, 0), dead(2, "10.20.0.3/16")}, Request{Exclude: []string{"hsn0"}}, nil},
		{"one warning of a network that grows from both of the first hosts", []*hostSpec{
			fabricOf(1, 0), fabricOf(2, 0).route("10.20.0.2/32", "", "", ""), fabricOf(3, 0), fabricOf(4, 0)}, Request{},
			[]string{better + "on n2, the route to 10.20.0.2 drops packets (blackhole or unreachable 10.20.0.2/32)"}},
		{"the small packets of one host", []*hostSpec{fabricOf(1, 0), fabricOf(2, 1500), fabricOf(3, 0)}, Request{},
			[]string{"10.20.0.0/16 would be better except for mtu 1500 of hsn0 on n2 (mtu 9000 elsewhere)"}},
		{"those of one of two", []*hostSpec{fabricOf(1, 1500), fabricOf(2, 0)}, Request{},
			[]string{"10.20.0.0/16 would be better except for mtu 1500 of hsn0 on n1 (mtu 9000 elsewhere)"}},
		{"those of one host, after a network without an advantage", []*hostSpec{
			fabricOf(1, 0).link(Link{Name: "eth1", Kind: "veth"}, "10.15.0.1/16"),
			fabricOf(2, 1500).link(Link{Name: "eth1", Kind: "veth"}, "10.15.0.2/16"),
			fabricOf(3, 0).link(Link{Name: "eth1", Kind: "veth"}, "10.15.0.3/16")}, Request{},
			[]string{"10.20.0.0/16 would be better except for mtu 1500 of hsn0 on n2 (mtu 9000 elsewhere)"}},
		{"those of most hosts are no mistake", []*hostSpec{fabricOf(1, 1500), fabricOf(2, 1500), fabricOf(3, 0)}, Request{}, nil},
		{"those that decide nothing", []*hostSpec{
			newHostSpec("a").link(Link{Name: "eth0", Speed: 25000}, "10.0.0.1/24").link(Link{Name: "eth1", Speed: 1000, MTU: 9000}, "10.1.0.1/24"),
			newHostSpec("b").link(Link{Name: "eth0", Speed: 25000}, "10.0.0.2/24").link(Link{Name: "eth1", Speed: 1000}, "10.1.0.2/24")}, Request{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []Inventory
			for i, n := range tt.nodes {
				inv := n.done(t)
				// The default route makes the management network win ties.
				if !slices.ContainsFunc(inv.Routes, func(r Route) bool { return r.Dst.Bits() == 0 }) && inv.Links[1].Name == "eth0" {
					inv.Routes = append(inv.Routes, Route{Dst: IPv4.defaultPrefix(), Dev: "eth0", Via: addr(fmt.Sprintf("10.10.255.%d", i+1))})
				}
				nodes = append(nodes, inv)
			}
			choices, err := Agree(nodes, tt.req)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range choices {
				if got := slices.DeleteFunc(slices.Clone(c.Warnings), func(w string) bool { return strings.HasPrefix(w, "mtu differs") }); !slices.Equal(got, tt.want) {
					t.Errorf("%s %s: warnings\n%q, want\n%q", c.Interface, c.Addr, got, tt.want)
				}
			}
		})
	}
}

// TestMissedWarningsThousandHosts checks that warnings are fast to compute for 1,000 hosts. The
// first two hosts lack the fast network, and each other host has several private networks.
func TestMissedWarningsThousandHosts(t *testing.T) {
	var nodes []Inventory
	for i := range 1000 {
		b := cloudHost(i)
		if i < 2 {
			b = newHostSpec(b.inv.Host).link(Link{Name: "eth0", Driver: "gve", PCI: "0000:00:0c.0"}, b.inv.Links[1].Addrs[0].String()).
				route("10.10.255.1/32", "eth0", "", "").route("0.0.0.0/0", "eth0", "10.10.255.1", "")
		}
		for k := range 3 {
			b.link(Link{Name: fmt.Sprintf("own%d", k), PCI: "0000:07:00.0"}, fmt.Sprintf("10.%d.%d.%d/30", 100+k, i/64, i%64*4+1))
		}
		nodes = append(nodes, b.done(t))
	}
	start := time.Now()
	choices, err := Agree(nodes, Request{})
	if err != nil {
		t.Fatal(err)
	}
	if c := choices[0]; c.Interface != "eth0" || len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "the network of eth1 would be better (mtu 8244) but does not reach every host: vm0 has no address") {
		t.Fatalf("%s, %q", c.Interface, c.Warnings)
	}
	// Usually below a second. The limit is for a busy machine.
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %s", took)
	}
}
