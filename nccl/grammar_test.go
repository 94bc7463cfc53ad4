package nccl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

// TestGrammars checks that Plan writes a choice in the syntax of each library and warns if a
// library cannot express it.
func TestGrammars(t *testing.T) {
	named := func(name, addr string) netif.Choice {
		p := netip.MustParsePrefix(addr)
		c := choice(name, p.Addr().String())
		c.Prefix = p.Masked()
		return c
	}
	shadowed := named("lo", "192.0.2.77/24")
	shadowed.Shadowed = true
	tests := []struct {
		name                  string
		choice                netif.Choice
		nccl, gloo, ucx, ompi string
		warnings              int
	}{
		{"a name that begins others", named("ib0", "10.1.0.1/16"), "=ib0", "ib0", "ib0", "10.1.0.0/16", 0},
		{"a VLAN", named("bond0.2973", "10.1.0.1/16"), "=bond0.2973", "bond0.2973", "bond0.2973", "10.1.0.0/16", 0},
		{"an alias", named("eth0:1", "10.1.0.1/16"), "", "", "", "10.1.0.0/16", 4},
		{"a comma", named("a,b", "10.1.0.1/16"), "", "", "", "10.1.0.0/16", 4},
		{"an address behind another", shadowed, "", "", "", "192.0.2.77/32", 4},
		{"IPv6", named("hsn0", "fd00::1/64"), "=hsn0", "hsn0", "hsn0", "hsn0", 0},
		{"a digit first, IPv6", named("10g0", "fd00::1/64"), "=10g0", "10g0", "10g0", "", 2},
		{"a host address", named("enp0s12", "10.0.0.5/32"), "=enp0s12", "enp0s12", "enp0s12", "10.0.0.5/32", 0},
		{"loopback", named("lo", "127.0.0.1/8"), "=lo", "lo", "", "", 0},
	}
	for _, tt := range tests {
		e := Plan(Facts{Choice: tt.choice})
		for name, want := range map[string]string{ncclInterface: tt.nccl, glooInterface: tt.gloo, tpInterface: tt.gloo, ucxDevices: tt.ucx, ompiInclude: tt.ompi, ompiOOBInclude: tt.ompi} {
			if got := valueOf(e, name); got != want {
				t.Errorf("%s: %s=%q, want %q", tt.name, name, got, want)
			}
		}
		if len(e.Warnings) != tt.warnings {
			t.Errorf("%s: warnings %q", tt.name, e.Warnings)
		}
	}
}

// TestOpenMPISharedSubnet checks that Plan names the interface for Open MPI if two interfaces
// share a subnet. With the subnet, Open MPI would use the first one.
func TestOpenMPISharedSubnet(t *testing.T) {
	h := newHost("n1").link(netif.Link{Name: "eno1"}, "192.168.3.15/20").link(netif.Link{Name: "enp37s0f0"}, "192.168.5.15/20")
	if got := valueOf(Plan(facts(h, "enp37s0f0")), ompiInclude); got != "enp37s0f0" {
		t.Errorf("%q names both interfaces", got)
	}
}

// TestAssessOpenMPI checks which values of Open MPI's interface lists contain the chosen interface.
func TestAssessOpenMPI(t *testing.T) {
	tests := []struct {
		value string
		wrong bool
	}{
		{"hsn0", false}, {"eth0,hsn0", false}, {"10.20.0.0/24", false}, {"10.0.0.0/8", false},
		{",hsn0", false}, {"a0,hsn0", false}, {"Z0,hsn0", false}, {"=eth0,hsn0", true},
		{"eth0", true}, {"10.21.0.0/24", true}, {"10.20.0.1", true}, {"", true}, {"fd00::/8", true}, {"=hsn0", true},
	}
	for _, tt := range tests {
		p := planner{Facts: Facts{Choice: choice("hsn0", "10.20.0.1")}}
		if got := p.assessOpenMPI(tt.value); got.isWrong != tt.wrong {
			t.Errorf("%q: %v, want %v", tt.value, got, tt.wrong)
		}
	}
}

// TestAssessInterface checks that a prefix of the user names the other interfaces that NCCL may use.
func TestAssessInterface(t *testing.T) {
	h := newHost("n1").link(netif.Link{Name: "eno1"}, "10.0.0.1/24").link(netif.Link{Name: "eno2"}, "10.1.0.1/24").
		link(netif.Link{Name: "eno3"}).link(netif.Link{Name: "eno4", Oper: "down"}, "10.2.0.1/24")
	for value, want := range map[string]string{"eno": "it allows eno1 and, as prefixes, eno2", "eno1": "it allows eno1", "=eno1": "it allows eno1", "^eno2": "it allows eno1"} {
		p := planner{Facts: facts(h, "eno1")}
		if got := p.assessInterface(value); got != accept("%s", want) {
			t.Errorf("%q: got %+v, want %q", value, got, want)
		}
	}
}

// TestAssessAdapters checks the comparison of the user's NCCL_IB_HCA with the usable ports, two of three
// adapters.
func TestAssessAdapters(t *testing.T) {
	h := newHost("n1").link(netif.Link{Name: "eno1"}, "10.0.0.1/24").adapter("mlx5_1", "0000:18:00.0", infiniBand, "ACTIVE", 200000).
		adapter("mlx5_10", "0000:19:00.0", infiniBand, "ACTIVE", 200000).adapter("mlx4_0", "0000:1a:00.0", infiniBand, "ACTIVE", 10000)
	for _, tt := range []struct {
		value, want string // want is a substring of the reason
		wrong       bool
	}{
		{"=mlx5_1,mlx5_10", "it allows every usable port", false},
		{"^=mlx4_0", "it allows every usable port", false},
		{"mlx5_", "it allows every usable port", false},
		{"=mlx5_1", "it excludes the usable ports mlx5_10:1", false},
		{"=mlx4_0", "it excludes all usable ports, mlx5_1:1, mlx5_10:1", true},
		{"mlx", "it also allows mlx4_0:1", true},
		{"mlx5_1", "it also allows mlx5_10, which start with mlx5_1: write =mlx5_1", true},
	} {
		f := facts(h, "eno1")
		f.Lookup = lookupIn(map[string]string{ibHCA: tt.value})
		for _, v := range Plan(f).Vars {
			if v.Name == ibHCA && (v.Wrong != tt.wrong || !strings.Contains(v.Reason, tt.want)) {
				t.Errorf("%s: got %+v, want %q", tt.value, v, tt.want)
			}
		}
	}
}

// TestSurvey checks which RDMA ports of a host survey selects for NCCL: not ports for storage,
// virtual machines, or other networks.
func TestSurvey(t *testing.T) {
	azure := newHost("a").link(netif.Link{Name: "eth0", Driver: "hv_netvsc", Speed: 100000}, "10.0.0.4/24").
		link(netif.Link{Name: "enP1s1", PCI: "0001:00:02.0", HCA: "mlx5_an0", Master: "eth0"}).
		adapter("mlx5_an0", "0001:00:02.0", ethernet, "ACTIVE", 100000).
		adapter("mlx5_ib0", "0101:00:00.0", infiniBand, "ACTIVE", 400000).
		adapter("mlx5_ib1", "0102:00:00.0", infiniBand, "ACTIVE", 400000)
	lag := newHost("l").link(netif.Link{Name: "bond0", Kind: "bond"}, "10.0.0.4/24").
		link(netif.Link{Name: "eth0", PCI: "0000:18:00.0", HCA: "mlx5_bond_0", Master: "bond0"}).
		adapter("mlx5_bond_0", "0000:18:00.0", ethernet, "ACTIVE", 200000, gid(3, "::ffff:10.0.0.4", roceV2, "bond0"))
	subnets := newHost("s").link(netif.Link{Name: "eth0"}, "10.0.0.4/24")
	for i, prefix := range []string{"fe80::", "fe80::", "fec0:0:0:2::"} {
		subnets.adapter("mlx5_"+string(rune('0'+i)), "0000:18:00.0", infiniBand, "ACTIVE", 200000, gid(0, prefix+"1", "IB/RoCE v1", ""))
	}
	planes := newHost("p").link(netif.Link{Name: "eth0"}, "10.0.0.4/24")
	for i, prefix := range []string{"fec0:0:0:1::", "fec0:0:0:2::"} {
		planes.adapter("mlx5_"+string(rune('0'+i)), "0000:18:00.0", infiniBand, "ACTIVE", 200000, gid(0, prefix+"1", "IB/RoCE v1", ""))
	}
	dual := newHost("d").link(netif.Link{Name: "eth0"}, "10.0.0.4/24")
	dual.RDMA = []netif.RDMADevice{{Name: "mlx5_0", NUMA: -1, Ports: []netif.RDMAPort{
		{Number: 1, LinkLayer: infiniBand, State: "INIT", Rate: 200000}, {Number: 2, LinkLayer: infiniBand, State: "ACTIVE", Rate: 200000}}}}
	faster := roce("f", 1, 80)
	faster.adapter("mlx5_9", "0000:99:00.0", infiniBand, "ACTIVE", 100000)
	unrated := newHost("u").link(netif.Link{Name: "eth0"}, "10.0.0.4/24").adapter("mlx5_0", "0000:18:00.0", infiniBand, "ACTIVE", 200000).
		adapter("mlx5_1", "0000:19:00.0", infiniBand, "ACTIVE", 0).adapter("mlx5_2", "0000:1a:00.0", infiniBand, "ACTIVE", -1)
	silent := newHost("i").link(netif.Link{Name: "eth0", PCI: "0000:18:00.0", HCA: "irdma0"}, "10.0.0.4/24").
		adapter("irdma0", "0000:18:00.0", ethernet, "ACTIVE", 10000, gid(0, "fe80::1", "", ""))
	member := newHost("m").link(netif.Link{Name: "bond0", Kind: "bond"}, "10.0.0.4/24").link(netif.Link{Name: "eth0", HCA: "mlx5_0", Master: "bond0", Speed: 25000})
	bridged := newHost("b").link(netif.Link{Name: "br0", Kind: "bridge"}, "10.0.0.4/24").link(netif.Link{Name: "eth0", HCA: "mlx5_0", Master: "br0", Speed: 25000})
	storage := newHost("t").link(netif.Link{Name: "eth0"}, "10.0.0.4/24")
	for _, name := range []string{"mlx5_0", "mlx5_10", "mlx5_2"} { // the order in the directory
		storage.adapter(name, "0000:18:00.0", infiniBand, "ACTIVE", 400000)
	}
	storage.adapter("mlx5_3", "0000:19:00.0", infiniBand, "ACTIVE", 200000)
	tests := []struct {
		name string
		host *hostBuilder
		link string
		want []string
	}{
		{"InfiniBand for storage at half the rate; by number", storage, "eth0", []string{"mlx5_0:1", "mlx5_2:1", "mlx5_10:1"}},
		{"part of a bond, which has the address", member, "bond0", []string{"mlx5_0:1"}},
		{"part of a bridge, which RoCE does not see", bridged, "br0", nil},
		{"accelerated networking beside InfiniBand", azure, "eth0", []string{"mlx5_ib0:1", "mlx5_ib1:1"}},
		{"a bond of RoCE ports", lag, "bond0", []string{"mlx5_bond_0:1"}},
		{"an InfiniBand subnet of its own for storage", subnets, "eth0", []string{"mlx5_0:1", "mlx5_1:1"}},
		{"a subnet for each rail", planes, "eth0", []string{"mlx5_0:1", "mlx5_1:1"}},
		{"the second port of an adapter", dual, "eth0", []string{"mlx5_0:2"}},
		{"chosen RoCE that is faster than InfiniBand", faster, "eth0", []string{"mlx5_0:1"}},
		{"InfiniBand where RoCE was not chosen", faster, "bond0", []string{"mlx5_9:1"}},
		{"a port without a rate, and one of an unknown rate", unrated, "eth0", []string{"mlx5_0:1", "mlx5_2:1"}},
		{"no address in the table", silent, "eth0", nil},
		{"Slingshot", slingshot(), "hsn0", nil},
		{"EFA", efa(), "enp71s0", nil},
	}
	for _, tt := range tests {
		c := tt.host.choose(tt.link)
		rails, rest := survey(&tt.host.Inventory, &c, "", nil)
		if got := names(rails); !slices.Equal(got, tt.want) && len(got)+len(tt.want) > 0 {
			t.Errorf("%s: %q, want %q, as %v", tt.name, got, tt.want, rest)
		}
	}
}

// TestPCIDistance checks the distance between a GPU and a port from their PCI paths and NUMA nodes.
func TestPCIDistance(t *testing.T) {
	tests := []struct {
		name      string
		gpu, port string
		gpuNode   int
		portNode  int
		want      distance
	}{
		{"one switch", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", 0, 0, distance{sameSwitch, 4}},
		{"one root port", "pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15/0000:15:01.0/0000:16:00.1", 0, 0, distance{sameSwitch, 2}},
		{"as sysfs has it", "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0", "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.1", 0, 0, distance{sameSwitch, 2}},
		{"without the root complex", "0000:15:01.0/0000:16:00.0", "0000:15:01.0/0000:16:00.1", -1, -1, distance{sameSwitch, 2}},
		{"one host bridge", "pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15/0000:15:02.0/0000:17:00.0", 0, 0, distance{sameRoot, 4}},
		{"one memory node", "pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:26/0000:26:01.0/0000:27:00.0", 0, 0, distance{sameNode, 0}},
		{"two memory nodes", "pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:26/0000:26:01.0/0000:27:00.0", 0, 1, distance{differentSockets, 0}},
		{"no paths", "", "", 1, 1, distance{sameNode, 0}},
		{"only the root complex of the GPU", "pci0000:15", "pci0000:15/0000:15:01.0", 0, 0, distance{sameRoot, 1}},
		{"paths only", "pci0000:15/0000:16:00.0", "pci0000:26/0000:27:00.0", -1, -1, distance{differentSockets, 0}},
		{"paths, and the memory node of the GPU", "pci0000:15/0000:16:00.0", "pci0000:26/0000:27:00.0", 0, -1, distance{unknownNode, 0}},
		{"paths, and the memory node of the port", "pci0000:15/0000:16:00.0", "pci0000:26/0000:27:00.0", -1, 0, distance{unknownNode, 0}},
		{"only the path of the GPU", "pci0000:15/0000:16:00.0", "", -1, -1, distance{unknownNode, 0}},
		{"only the path of the port", "", "pci0000:26/0000:27:00.0", -1, -1, distance{unknownNode, 0}},
		{"nothing known", "", "", -1, -1, distance{unknownNode, 0}},
		{"one memory node not known", "", "", 0, -1, distance{unknownNode, 0}},
	}
	for _, tt := range tests {
		got := pciDistance(&netif.GPU{Path: tt.gpu, NUMA: tt.gpuNode}, &rail{path: components(tt.port), numa: tt.portNode})
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestGIDVersions checks that Plan sets the GID index only for NCCL before 2.21. Later versions
// select it themselves.
func TestGIDVersions(t *testing.T) {
	for version, want := range map[int]string{22005: "3", 22100: "", 22703: "", 0: ""} {
		f := facts(roce("n1", 1, 80, 81), "bond0")
		f.Version = version
		if got := valueOf(Plan(f), ibGID); got != want {
			t.Errorf("NCCL %d: %s=%q, want %q", version, ibGID, got, want)
		}
	}
}

// TestGIDIndex checks a GID index of the user, and the index of a port whose first address is usable.
func TestGIDIndex(t *testing.T) {
	for value, want := range map[string]bool{"-1": false, "0": true, "1": true, "2": true, "3": false, "4": true} {
		f := facts(roce("n1", 1, 80, 81), "bond0")
		f.Lookup = lookupIn(map[string]string{ibGID: value})
		for _, v := range Plan(f).Vars {
			if v.Name == ibGID && v.Wrong != want {
				t.Errorf("%s=%s: %+v", ibGID, value, v)
			}
		}
	}
	port := func(gids ...netif.GID) *hostBuilder {
		return newHost("n1").link(netif.Link{Name: "eth0", Speed: 400000, PCI: "0000:1b:00.0", HCA: "mlx5_0"}, "10.0.0.1/24", "fd00::1/64").
			adapter("mlx5_0", "0000:1b:00.0", ethernet, "ACTIVE", 400000, gids...)
	}
	for _, tt := range []struct {
		name    string
		host    *hostBuilder
		version int
		value   string // of NCCL_IB_GID_INDEX
		message string // substring of a note or warning about NCCL_IB_GID_INDEX
	}{
		{"first index, unknown version", port(gid(0, "::ffff:10.0.0.1", roceV2, "eth0")), 0, "", ""},
		{"first index", port(gid(0, "::ffff:10.0.0.1", roceV2, "eth0")), 22005, "0", ""},
		{"later index, unknown version", port(gid(1, "::ffff:10.0.0.1", roceV2, "eth0")), 0, "", "requires NCCL_IB_GID_INDEX=1"},
		{"no table", port(), 22005, "", "the GID table of mlx5_0:1 is unreadable"},
		{"only RoCE v1", port(gid(0, "::ffff:10.0.0.1", roceV1, "eth0")), 22005, "", "mlx5_0:1 has no global address of RoCE v2"},
		{"only RoCE v1, unknown version", port(gid(0, "::ffff:10.0.0.1", roceV1, "eth0")), 0, "", "has no valid value on this host: mlx5_0:1 has no global address"},
		{"only RoCE v1, version that selects it", port(gid(0, "::ffff:10.0.0.1", roceV1, "eth0")), dynamicGID, "", ""},
	} {
		f := facts(tt.host, "eth0")
		f.Version = tt.version
		e := Plan(f)
		messages := strings.Join(slices.DeleteFunc(slices.Concat(e.Warnings, e.Notes), func(m string) bool { return !strings.Contains(m, ibGID) }), "\n")
		if got := valueOf(e, ibGID); got != tt.value || (messages == "") != (tt.message == "") || !strings.Contains(messages, tt.message) {
			t.Errorf("%s: got %q and %q, want %q and %q", tt.name, got, messages, tt.value, tt.message)
		}
	}
}

// TestGIDOfVersions checks which versions of NCCL get the address family and the network of the GIDs.
// Versions before 2.21 do not select a GID.
func TestGIDOfVersions(t *testing.T) {
	six := newHost("n1").link(netif.Link{Name: "eth0", Speed: 400000, PCI: "0000:1b:00.0", HCA: "mlx5_0"}, "fd00:1::1/64", "fd00:2::1/64").
		adapter("mlx5_0", "0000:1b:00.0", ethernet, "ACTIVE", 400000, gid(0, "fd00:1::1", roceV2, "eth0"), gid(1, "fd00:2::1", roceV2, "eth0"))
	for version, want := range map[int]string{0: "AF_INET6 fd00:1::/64", dynamicGID - 1: " ", dynamicGID: "AF_INET6 fd00:1::/64", 23007: "AF_INET6 fd00:1::/64"} {
		f := facts(six, "eth0")
		f.Version = version
		e := Plan(f)
		if got := valueOf(e, ibAddrFamily) + " " + valueOf(e, ibAddrRange); got != want {
			t.Errorf("NCCL %d: got %q, want %q", version, got, want)
		}
	}
}

// TestNetWithoutRDMA checks that Plan warns if the user requires InfiniBand and a host of the job
// has no usable port.
func TestNetWithoutRDMA(t *testing.T) {
	hosts := []*hostBuilder{roce("n1", 1, 80), plainHost("n2", 2)}
	f := facts(hosts[0], "bond0")
	f.Job, f.Lookup = agree(t, hosts, "bond0", "eth0"), lookupIn(map[string]string{ncclNet: "IB"})
	e := Plan(f)
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], `NCCL_NET="IB" (from the environment) is unchanged, but no usable RoCE port on n2`) {
		t.Errorf("warnings %q", e.Warnings)
	}
}

// managed are the variables that another source may have set.
var managed = []string{ncclInterface, ncclFamily, ncclCommID, ibDisable, ibHCA, ibGID, ibAddrFamily, ibAddrRange, crossNIC, ncclNet, ncclNetPlugin,
	debugLevel, debugFile, glooInterface, tpInterface, ucxDevices, ompiInclude, ompiExclude, ompiOOBInclude, ompiOOBExclude,
	oobEnable, oobInterface, topologyFile, rasEnable, rasAddress, rasTimeout}

// FuzzPlanKeeps checks that Plan never changes a value that the user or the site has set, except
// values that NCCL ignores, and lists each variable once.
func FuzzPlanKeeps(f *testing.F) {
	for i := range managed {
		for _, value := range []string{"", "^", "=mlx5_0:1", "eth0", "1", "10.0.0.0/8", "a:b:c,,", "\x00", "AF_INET6", "3"} {
			f.Add(uint(i), value, i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, which uint, value string, fromSite bool) {
		name := managed[which%uint(len(managed))]
		h := roce("n1", 1, 80, 81)
		facts := Facts{Choice: h.choose("eth0"), Inventory: h.Inventory, DebugFile: "/x/%p", Version: 22005, Job: Job{Hosts: 2, Layer: ethernet}}
		if fromSite {
			facts.Site = Profile{Name: "here", Vars: map[string]string{name: value}}
		} else {
			facts.Lookup = lookupIn(map[string]string{name: value})
		}
		e := Plan(facts)
		ignored := name == ncclInterface && len(value) < 2 || value == "" && (name == ncclFamily || name == glooInterface || name == tpInterface)
		if ignored {
			return
		}
		at := slices.IndexFunc(e.Vars, func(v Var) bool { return v.Name == name })
		if at < 0 {
			t.Fatalf("%s=%q is not listed", name, value)
		}
		if v := e.Vars[at]; v.Value != value || v.Source == Planned || v.Reason == "" {
			t.Fatalf("%s=%q became %+v", name, value, v)
		}
		set := slices.ContainsFunc(e.ToSet(), func(v Var) bool { return v.Name == name })
		if set != fromSite {
			t.Fatalf("%s=%q of the site %v: to be set %v", name, value, fromSite, set)
		}
		seen := map[string]bool{}
		for _, v := range e.Vars {
			if seen[v.Name] {
				t.Fatalf("%s is listed twice", v.Name)
			}
			seen[v.Name] = true
		}
	})
}
