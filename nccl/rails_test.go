package nccl

import (
	"net/netip"
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

// TestPortsOfLinks checks the ports of a host whose sysfs does not show the adapters. Links of the same
// adapter are one port with an unknown number.
func TestPortsOfLinks(t *testing.T) {
	h := newHost("n1").link(netif.Link{Name: "eth0"}, "10.0.0.1/24").
		link(netif.Link{Name: "ens1f0", HCA: "mlx5_0", Speed: 100000, Oper: "down"}).link(netif.Link{Name: "ens1f1", HCA: "mlx5_0", Speed: 200000}).
		link(netif.Link{Name: "ib0", HCA: "mlx5_1", Speed: 400000, ARPHRD: "infiniband"}).link(netif.Link{Name: "hsn0", HCA: "cxi0", Speed: 200000})
	want := []struct {
		name, layer string
		rate, links int
		active      bool
	}{
		{"mlx5_0", ethernet, 200000, 2, true},
		{"mlx5_1:1", infiniBand, 400000, 1, true},
	}
	got := ports(&h.Inventory)
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i, w := range want {
		if r := &got[i]; r.String() != w.name || r.layer != w.layer || r.rate != w.rate || len(r.links) != w.links || r.active != w.active {
			t.Errorf("got %+v, want %+v", r, w)
		}
	}
}

// TestRailAddresses checks whether a port is excluded, and whether it certainly has no address.
func TestRailAddresses(t *testing.T) {
	link := func(name, parent string, addrs ...string) *netif.Link {
		l := &netif.Link{Name: name, Parent: parent}
		for _, a := range addrs {
			l.Addrs = append(l.Addrs, netip.MustParsePrefix(a))
		}
		return l
	}
	bare, full := link("ens1", ""), link("ens1", "", "10.0.0.1/24")
	seven, eight := link("ens1.7", "ens1", "10.7.0.1/24"), link("ens1.8", "ens1", "10.8.0.1/24")
	local, global := gid(0, "fe80::1", roceV2, "ens1"), gid(1, "::ffff:10.0.0.1", roceV2, "ens1")
	for _, tt := range []struct {
		name            string
		rail            rail
		excluded, lacks bool // of ens1.7
	}{
		{"address", rail{layer: ethernet, links: []*netif.Link{full}}, false, false},
		{"address, and an excluded VLAN", rail{layer: ethernet, links: []*netif.Link{full, seven}}, false, false},
		{"only an excluded VLAN", rail{layer: ethernet, links: []*netif.Link{bare, seven}}, true, false},
		{"another VLAN", rail{layer: ethernet, links: []*netif.Link{bare, seven, eight}}, false, false},
		{"no address", rail{layer: ethernet, links: []*netif.Link{bare}}, false, true},
		{"no link", rail{layer: ethernet}, false, false},
		{"no global GID", rail{layer: ethernet, links: []*netif.Link{full}, gids: []netif.GID{local}}, false, true},
		{"global GID", rail{layer: ethernet, links: []*netif.Link{full}, gids: []netif.GID{local, global}}, false, false},
		{"global GID of another namespace", rail{layer: ethernet, links: []*netif.Link{bare}, gids: []netif.GID{global}}, false, false},
		{"InfiniBand", rail{layer: infiniBand, links: []*netif.Link{bare}}, false, false},
	} {
		if got := tt.rail.excluded([]string{"ens1.7"}); got != tt.excluded {
			t.Errorf("%s: excluded: %v", tt.name, got)
		}
		if got := tt.rail.lacksAddress(); got != tt.lacks {
			t.Errorf("%s: lacks an address: %v", tt.name, got)
		}
	}
}

// TestForeignFabric checks which fast networks require a plugin of NCCL.
func TestForeignFabric(t *testing.T) {
	withRails := slingshot()
	withRails.adapter("mlx5_0", "0000:99:00.0", infiniBand, "ACTIVE", 100000)
	downSlingshot := newHost("n1").link(netif.Link{Name: "hsn0", Driver: "cxi_ss1", Oper: "down"})
	otherDriver := efa()
	otherDriver.Links[0].Driver = "ixgbevf"
	efaAndIB := newHost("n1").link(netif.Link{Name: "ens5", Driver: "ena"}).adapter("mlx5_0", "0000:99:00.0", infiniBand, "DOWN", 100000)
	efaAndRoCE := newHost("n1").link(netif.Link{Name: "ens5", Driver: "ena"}).adapter("mlx5_0", "0000:99:00.0", ethernet, "DOWN", 100000)
	for _, tt := range []struct {
		name string
		host *hostBuilder
		want string
	}{
		{"none", plainHost("n1", 1), ""},
		{"Slingshot", slingshot(), "Slingshot"},
		{"Slingshot that is down", downSlingshot, ""},
		{"EFA", efa(), "EFA"},
		{"unknown adapter without ENA", otherDriver, ""},
		{"ENA without EFA", newHost("n1").link(netif.Link{Name: "ens5", Driver: "ena"}), ""},
		{"ENA and InfiniBand", efaAndIB, ""},
		{"ENA and RoCE", efaAndRoCE, ""},
	} {
		if got := (&planner{Facts: Facts{Inventory: tt.host.Inventory}}).foreignFabric(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := (&planner{Facts: Facts{Inventory: withRails.Inventory}, rails: ports(&withRails.Inventory)}).foreignFabric(); got != "" {
		t.Errorf("usable ports: got %q", got)
	}
}

func TestRateText(t *testing.T) {
	for rate, want := range map[int]string{-1: "an unknown rate", 0: "0 Gb/s", 2500: "2.5 Gb/s", 400000: "400 Gb/s"} {
		if got := rateText(rate); got != want {
			t.Errorf("%d: got %q, want %q", rate, got, want)
		}
	}
}
