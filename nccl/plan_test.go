package nccl

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

var update = flag.Bool("update", false, "rewrite golden files")

func agree(t *testing.T, hosts []*hostBuilder, names ...string) Job {
	t.Helper()
	var inventories []netif.Inventory
	var choices []netif.Choice
	for i, h := range hosts {
		inventories = append(inventories, h.Inventory)
		choices = append(choices, h.choose(names[i]))
	}
	job, err := Agree(inventories, choices)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func facts(h *hostBuilder, link string) Facts {
	return Facts{Choice: h.choose(link), Inventory: h.Inventory}
}

// TestPlanGolden compares the full plan for each kind of host with a golden file: variables,
// reasons, warnings, and notes.
func TestPlanGolden(t *testing.T) {
	tests := []struct {
		name  string
		facts func() Facts
	}{
		{"ethernet", func() Facts { return facts(plainHost("n1", 1), "eth0") }},
		{"infiniband", func() Facts {
			f := facts(dgx("dgx1"), "eno3")
			f.LocalRank = 6
			f.DebugFile = "/scratch/run/nccl-%h-%p.log"
			return f
		}},
		{"roce-rails", func() Facts { return facts(roce("n1", 1, 80, 81, 82, 83), "bond0") }},
		{"roce-old-nccl", func() Facts {
			f := facts(roce("n1", 1, 80), "eth0")
			f.Version = 22005
			return f
		}},
		{"roce-gids-differ", func() Facts {
			h := roce("n1", 1, 80, 81)
			h.RDMA[1].Ports[0].GIDs[3].Index = 5
			f := facts(h, "bond0")
			f.Version = 21806
			return f
		}},
		{"roce-ipv6", func() Facts {
			h := newHost("n1").link(netif.Link{Name: "eth0", Speed: 400000, PCI: "0000:1b:00.0", HCA: "mlx5_0"}, "fd00:1::1/64")
			h.adapter("mlx5_0", "0000:1b:00.0", ethernet, "ACTIVE", 400000, gid(0, "fe80::1", roceV2, "eth0"), gid(2, "fd00:1::1", roceV1, "eth0"), gid(3, "fd00:1::1", roceV2, "eth0"))
			return facts(h, "eth0")
		}},
		{"roce-two-networks", func() Facts {
			h := roce("n1", 1, 80)
			h.link(netif.Link{Name: "eth0.7", Kind: "vlan", Parent: "eth0", Speed: 400000}, "10.7.0.1/24")
			ports := h.RDMA[0].Ports
			ports[0].GIDs = append(ports[0].GIDs, gid(4, "::ffff:10.7.0.1", roceV1, "eth0.7"), gid(5, "::ffff:10.7.0.1", roceV2, "eth0.7"))
			return facts(h, "eth0.7")
		}},
		{"mixed", func() Facts {
			hosts := []*hostBuilder{roce("n1", 1, 80), plainHost("n2", 2)}
			f := facts(hosts[0], "bond0")
			f.Job = agree(t, hosts, "bond0", "eth0")
			return f
		}},
		{"slingshot", func() Facts { return facts(slingshot(), "hsn0") }},
		{"slingshot-amd", func() Facts {
			h := slingshot()
			for range 8 {
				h.gpu("0000:d1:00.0", "", -1)
			}
			for i := range h.GPUs {
				h.GPUs[i].Vendor = netif.AMD
			}
			return facts(h, "hsn0")
		}},
		{"slingshot-plugin", func() Facts {
			f := facts(slingshot(), "hsn0")
			f.Plugin = "AWS Libfabric"
			return f
		}},
		{"efa", func() Facts { return facts(efa(), "enp71s0") }},
		{"user", func() Facts {
			f := facts(dgx("dgx1"), "eno3")
			f.Lookup = lookupIn(map[string]string{"NCCL_SOCKET_IFNAME": "en", "NCCL_IB_HCA": "mlx5_1", "NCCL_NET": "IB", "NCCL_DEBUG": "INFO",
				"UCX_NET_DEVICES": "all", "OMPI_MCA_btl_tcp_if_exclude": "lo,eno4", "OMPI_MCA_oob_tcp_if_include": "eno4", "GLOO_SOCKET_IFNAME": "^lo"})
			f.DebugFile = "nccl.log"
			return f
		}},
		{"profile", func() Facts {
			f := facts(slingshot(), "hsn0")
			f.Site = Profile{Name: "alps", Vars: map[string]string{"NCCL_NET": "AWS Libfabric", "NCCL_SOCKET_IFNAME": "hsn", "FI_CXI_RX_MATCH_MODE": "software"}}
			f.Lookup = lookupIn(map[string]string{"NCCL_SOCKET_IFNAME": "hsn"})
			f.Conf = parseConf("/etc/nccl.conf", []byte("NCCL_NET=Socket\nNCCL_CROSS_NIC=1\n"))
			return f
		}},
		{"conf", func() Facts {
			f := facts(roce("n1", 1, 80, 81), "bond0")
			f.Conf = parseConf("/etc/nccl.conf", []byte("# ours\nNCCL_IB_GID_INDEX=2\nNCCL_CROSS_NIC=1\nNCCL_IB_HCA=mlx5_0\nUCX_NET_DEVICES=mlx5_0:1\n"))
			return f
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			e := Plan(tt.facts())
			toSet := map[string]bool{}
			for _, v := range e.ToSet() {
				toSet[v.Name] = true
			}
			for _, v := range e.Vars {
				mark := " "
				if toSet[v.Name] {
					mark = "+"
				}
				fmt.Fprintf(&b, "%s %s=%s\n    %s %s: %s\n", mark, v.Name, v.Value, v.Source, v.From, v.Reason)
			}
			for _, w := range e.Warnings {
				fmt.Fprintf(&b, "WARNING %s\n", w)
			}
			for _, n := range e.Notes {
				fmt.Fprintf(&b, "note %s\n", n)
			}
			golden(t, "plan-"+tt.name, b.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update to accept):\n%s", file, got)
	}
}

func valueOf(e Env, name string) string {
	for _, v := range e.Vars {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// TestAffinity checks that a rank uses a port near its GPU with libraries that use a single port.
// NCCL gets all ports.
func TestAffinity(t *testing.T) {
	tests := []struct {
		name      string
		host      *hostBuilder
		localRank int
		gpu       string
		visible   string
		want      string
	}{
		{"below one switch", dgx("d"), 0, "", "", "mlx5_0:1"},
		{"the sixth", dgx("d"), 5, "", "", "mlx5_9:1"},
		{"by bus address, as NVML writes it", dgx("d"), 0, "00000000:79:00.0", "", "mlx5_10:1"},
		{"all of them visible", dgx("d"), 1, "", "7,2", "mlx5_4:1"},
		{"one visible", dgx("d"), 3, "", "7", "mlx5_11:1"},
		{"by UUID: not known", dgx("d"), 2, "", "GPU-0a1b", "mlx5_4:1"},
		{"more ranks than GPUs", dgx("d"), 9, "", "", "mlx5_3:1"},
		{"two ports on each of two sockets, first GPU", twoSockets(), 0, "", "", "mlx5_0:1"},
		{"second GPU of the socket", twoSockets(), 1, "", "", "mlx5_1:1"},
		{"third GPU of the socket", twoSockets(), 2, "", "", "mlx5_0:1"},
		{"all ranks of the host", twoSockets(), -1, "", "", "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"},
		{"first GPU of the other socket, after three", withoutFirstGPU(twoSockets()), 3, "", "", "mlx5_2:1"},
		{"other socket", twoSockets(), 4, "", "", "mlx5_2:1"},
		{"adapters without an interface", withoutInterfaces(dgx("d")), 5, "", "", "mlx5_9:1"},
	}
	for _, tt := range tests {
		link := "eno3"
		f := facts(tt.host, link)
		f.LocalRank, f.GPU = tt.localRank, tt.gpu
		f.Lookup = lookupIn(map[string]string{"CUDA_VISIBLE_DEVICES": tt.visible})
		e := Plan(f)
		if got := strings.TrimSuffix(valueOf(e, ucxDevices), ","+f.Choice.Interface); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if n := strings.Count(valueOf(e, ibHCA), ","); n < 3 {
			t.Errorf("%s: NCCL gets only %d ports", tt.name, n+1)
		}
	}
}

// withoutInterfaces removes the interfaces of a host's adapters and retains their PCI paths,
// as for InfiniBand without IPoIB.
func withoutInterfaces(h *hostBuilder) *hostBuilder {
	for i := range h.RDMA {
		for k := range h.Links {
			if h.Links[k].HCA == h.RDMA[i].Name {
				h.RDMA[i].Path, h.Links[k].Path, h.Links[k].HCA, h.Links[k].PCI = h.Links[k].Path, "", "", ""
			}
		}
	}
	return h
}

func withoutFirstGPU(h *hostBuilder) *hostBuilder {
	h.GPUs = h.GPUs[1:]
	return h
}

// TestVisibleGPU checks which GPU belongs to a rank.
func TestVisibleGPU(t *testing.T) {
	const cuda, rocr = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
	h := twoSockets()
	for _, tt := range []struct {
		name      string
		localRank int
		bus       string
		env       map[string]string
		want      int // index of the GPU; -1 if it is unknown
	}{
		{"first rank", 0, "", nil, 0},
		{"last GPU", 7, "", nil, 7},
		{"more ranks than GPUs", 8, "", nil, -1},
		{"no rank", -1, "", nil, -1},
		{"bus address", 0, "0000:31:00.0", nil, 2},
		{"unknown bus address", 0, "0000:ff:00.0", nil, -1},
		{"first of the list", 0, "", map[string]string{cuda: "5,3"}, 5},
		{"last of the list", 1, "", map[string]string{cuda: "5, 3"}, 3},
		{"beyond the list", 2, "", map[string]string{cuda: "5,3"}, -1},
		{"no rank, with a list", -1, "", map[string]string{cuda: "5,3"}, -1},
		{"one GPU for each rank", 3, "", map[string]string{cuda: "5"}, 5},
		{"empty list", 3, "", map[string]string{cuda: ""}, 3},
		{"AMD", 1, "", map[string]string{rocr: "5,3"}, 3},
		{"both", 1, "", map[string]string{cuda: "1,0", rocr: "5,3"}, 0},
		{"number beyond the GPUs", 0, "", map[string]string{cuda: "8,0"}, -1},
		{"negative number", 0, "", map[string]string{cuda: "-1,0"}, -1},
		{"UUID", 0, "", map[string]string{cuda: "GPU-0a1b,GPU-2c3d"}, -1},
	} {
		f := facts(h, "eno3")
		f.LocalRank, f.GPU, f.Lookup = tt.localRank, tt.bus, lookupIn(tt.env)
		got := (&planner{Facts: f}).gpu()
		if tt.want < 0 && got != nil || tt.want >= 0 && got != &h.GPUs[tt.want] {
			t.Errorf("%s: got %+v, want %d", tt.name, got, tt.want)
		}
	}
}

// twoSockets has two ports and four GPUs on each of two sockets.
func twoSockets() *hostBuilder {
	h := newHost("s").link(netif.Link{Name: "eno3", Speed: 10000}, "10.0.8.31/24")
	for i := range 4 {
		name := fmt.Sprintf("mlx5_%d", i)
		h.adapter(name, fmt.Sprintf("0000:%d0:00.0", i+1), infiniBand, "ACTIVE", 200000)
		h.RDMA[i].NUMA = i / 2
	}
	for i := range 8 {
		h.gpu(fmt.Sprintf("0000:%d1:00.0", i+1), "", i/4)
	}
	return h
}

// TestCompareNames checks that adapters are sorted by their numbers, as in the names mlx5_2 and
// mlx5_10.
func TestCompareNames(t *testing.T) {
	want := []string{"1x", "mlx5_0", "mlx5_2", "mlx5_10", "mlx5_a10", "mlx5_b2", "mlx5_bond_0", "rocep1s0f1", "roceP2p1s0f1", "rocep10s0", "x01", "x1"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareNames)
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

// TestExclude checks that Plan omits the port of an excluded interface.
func TestExclude(t *testing.T) {
	f := facts(dgx("d"), "eno3")
	f.Exclude = []string{"ib3"}
	if hca := valueOf(Plan(f), ibHCA); strings.Contains(hca, "mlx5_5:") || strings.Count(hca, ",") != 6 {
		t.Errorf("without ib3: %s", hca)
	}
}

// TestAcrossSockets checks that Plan notes if the closest adapter of a GPU is on a different
// socket.
func TestAcrossSockets(t *testing.T) {
	h := twoSockets()
	h.RDMA = h.RDMA[:2] // all on the first socket
	f := facts(h, "eno3")
	f.LocalRank = 5
	e := Plan(f)
	if len(e.Notes) != 1 || !strings.Contains(e.Notes[0], "GPU 0000:61:00.0 (NUMA node 1) and its closest adapter mlx5_1:1 (NUMA node 0) are on different sockets") {
		t.Errorf("notes %q", e.Notes)
	}
}
