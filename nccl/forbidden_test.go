package nccl

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

// withRoCE has a management network, which is chosen, and a RoCE port.
func withRoCE(addrs ...string) *hostBuilder {
	return newHost("n1").link(netif.Link{Name: "eno1", Speed: 10000}, "10.0.0.1/24").
		link(netif.Link{Name: "ens1", Speed: 100000, PCI: "0000:18:00.0", HCA: "mlx5_0"}, addrs...).
		adapter("mlx5_0", "0000:18:00.0", ethernet, "ACTIVE", 100000)
}

// TestForbiddenPorts checks that Plan keeps NCCL away from ports that it must not use. NCCL uses every
// port that it finds, so Plan must list these ports or turn off InfiniBand and RoCE.
func TestForbiddenPorts(t *testing.T) {
	two := withRoCE("10.9.0.1/24").link(netif.Link{Name: "ens2", Speed: 100000, PCI: "0000:19:00.0", HCA: "mlx5_1"}, "10.8.0.1/24").
		adapter("mlx5_1", "0000:19:00.0", ethernet, "ACTIVE", 100000)
	azure := newHost("a").link(netif.Link{Name: "eno1", Driver: "hv_netvsc"}, "10.0.0.4/24").
		link(netif.Link{Name: "enP1s1", PCI: "0001:00:02.0", HCA: "mlx5_an0", Master: "eno1"}).
		adapter("mlx5_an0", "0001:00:02.0", ethernet, "ACTIVE", 100000)
	elsewhere := newHost("c").link(netif.Link{Name: "eno1"}, "10.0.0.1/24").
		adapter("mlx5_0", "0000:18:00.0", ethernet, "ACTIVE", 100000, gid(3, "::ffff:10.9.0.1", roceV2, ""))
	vlans := withRoCE("10.9.0.1/24").link(netif.Link{Name: "ens1.7", Kind: "vlan", Parent: "ens1"}, "10.7.0.1/24")
	down := withRoCE()
	down.RDMA[0].Ports[0].State = "DOWN"
	tests := []struct {
		name         string
		host         *hostBuilder
		exclude      []string
		env          map[string]string
		off, hca     string
		reason       string // substring of the reason for the variable
		warned, job  string // substring of the only warning: for a single host, and for a job of two
		alone, wrong bool   // only on a single host; the value of NCCL_IB_HCA is wrong
	}{
		{name: "excluded", host: withRoCE("10.9.0.1/24"), exclude: []string{"ens1"}, off: "1", reason: "mlx5_0:1 (its interface is excluded)"},
		{name: "without an address", host: withRoCE(), off: "1", reason: "mlx5_0:1 (no IP address",
			warned: "mlx5_0:1 of n1 is active but has no IP address", job: "mlx5_0:1 of n1 is active but has no IP address"},
		{name: "below a virtual machine's interface", host: azure, off: "1", reason: "mlx5_an0:1"},
		{name: "no port that NCCL finds", host: down},
		{name: "an address in another namespace", host: elsewhere},
		{name: "one of two that are left to NCCL", host: two, exclude: []string{"ens1"}, hca: "^=mlx5_0:1", reason: "all ports except mlx5_0:1", alone: true},
		{name: "on by the user", host: withRoCE("10.9.0.1/24"), exclude: []string{"ens1"}, env: map[string]string{ibDisable: "0"}, off: "0", hca: "^=mlx5_0:1"},
		{name: "named by the user", host: withRoCE("10.9.0.1/24"), exclude: []string{"ens1"}, env: map[string]string{ibHCA: "mlx5_0"}, hca: "mlx5_0", wrong: true,
			warned: "it allows mlx5_0:1 (its interface is excluded)"},
		{name: "kept off by the user", host: withRoCE("10.9.0.1/24"), exclude: []string{"ens1"}, env: map[string]string{ibHCA: "^mlx5_0"}, hca: "^mlx5_0"},
		{name: "one of several networks excluded", host: vlans, exclude: []string{"ens1.7"}, alone: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check := func(job Job, warned string) {
				t.Helper()
				f := facts(tt.host, "eno1")
				f.Exclude, f.Lookup, f.Job = tt.exclude, lookupIn(tt.env), job
				e := Plan(f)
				if off, hca := valueOf(e, ibDisable), valueOf(e, ibHCA); off != tt.off || hca != tt.hca {
					t.Errorf("%d hosts: off %q, adapters %q; want %q, %q", job.Hosts, off, hca, tt.off, tt.hca)
				}
				for _, v := range e.Vars {
					if (v.Name == ibDisable || v.Name == ibHCA) && v.Source == Planned && !strings.Contains(v.Reason, tt.reason) {
						t.Errorf("%s because %q, want %q", v.Name, v.Reason, tt.reason)
					}
					if v.Name == ibHCA && v.Wrong != tt.wrong {
						t.Errorf("%+v", v)
					}
				}
				if (warned == "") != (len(e.Warnings) == 0) || !strings.Contains(strings.Join(e.Warnings, "\n"), warned) {
					t.Errorf("%d hosts: warnings %q, want %q", job.Hosts, e.Warnings, warned)
				}
			}
			check(Job{}, tt.warned)
			if tt.alone {
				return
			}
			c := tt.host.choose("eno1")
			job, err := Agree([]netif.Inventory{tt.host.Inventory, tt.host.Inventory}, []netif.Choice{c, c}, tt.exclude...)
			if err != nil || job.Layer != "" || job.WithoutRDMA != "" {
				t.Fatal(job, err)
			}
			if (tt.job == "") != (len(job.Warnings) == 0) || !strings.Contains(strings.Join(job.Warnings, "\n"), tt.job) {
				t.Errorf("warnings of the job %q, want %q", job.Warnings, tt.job)
			}
			if tt.job != "" {
				check(job, "") // already reported
				return
			}
			check(job, tt.warned)
		})
	}
}

// TestMaxPorts checks that Plan lists ports only if NCCL reads all of them. It lists usable ports, or
// else the ports that NCCL must not use.
func TestMaxPorts(t *testing.T) {
	for _, tt := range []struct {
		name              string
		usable, forbidden int
		want              string // prefix of NCCL_IB_HCA
		listed, warnings  int
	}{
		{"as many as NCCL reads", maxPorts, 0, "=", maxPorts, 0},
		{"one more", maxPorts + 1, 0, "", 0, 1},
		{"one more, and a forbidden port", maxPorts + 1, 1, "^=", 1, 1},
		{"one more, and as many forbidden ports", maxPorts + 1, maxPorts, "^=", maxPorts, 1},
		{"one more of both", maxPorts + 1, maxPorts + 1, "", 0, 2},
	} {
		h := newHost("n1").link(netif.Link{Name: "eno1", Speed: 10000}, "10.0.0.1/24")
		var exclude []string
		for i := range tt.usable + tt.forbidden {
			name, device, bus := fmt.Sprintf("ib%d", i), fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("0000:%02x:00.0", i)
			h.link(netif.Link{Name: name, ARPHRD: "infiniband", PCI: bus, HCA: device}).adapter(device, bus, infiniBand, "ACTIVE", 100000)
			if i >= tt.usable {
				exclude = append(exclude, name)
			}
		}
		f := facts(h, "eno1")
		f.Exclude = exclude
		e := Plan(f)
		got := valueOf(e, ibHCA)
		if !strings.HasPrefix(got, tt.want) || got != "" && strings.Count(got, ",")+1 != tt.listed || (got == "") != (tt.listed == 0) || len(e.Warnings) != tt.warnings {
			t.Errorf("%s: got %q and warnings %q", tt.name, got, e.Warnings)
		}
	}
}

// TestVLAN checks that Plan selects the port below a chosen VLAN, with and without a readable GID
// table.
func TestVLAN(t *testing.T) {
	for _, rdma := range []bool{true, false} {
		h := withRoCE("10.9.0.1/24").link(netif.Link{Name: "ens1.200", Kind: "vlan", Parent: "ens1"}, "10.200.0.1/24")
		if !rdma {
			h.RDMA = nil
		}
		e := Plan(facts(h, "ens1.200"))
		if hca := valueOf(e, ibHCA); hca != "=mlx5_0:1" {
			t.Errorf("adapters %q; notes %q", hca, e.Notes)
		}
	}
}

// TestUCXDevices checks that Plan names adapters and interfaces for UCX in one list, keeps the
// user's list, and notes if UCX has no TCP because no interface can be named.
func TestUCXDevices(t *testing.T) {
	shadowed := facts(dgx("d"), "eno3")
	shadowed.Choice.Shadowed = true
	e := Plan(shadowed)
	if got := valueOf(e, ucxDevices); got != "mlx5_0:1" {
		t.Errorf("devices %q", got)
	}
	if !slices.ContainsFunc(e.Notes, func(n string) bool { return strings.HasPrefix(n, "UCX has no TCP in addition to mlx5_0:1") }) {
		t.Errorf("notes %q", e.Notes)
	}
	f := facts(twoSockets(), "eno3")
	f.LocalRank = -1
	if got := valueOf(Plan(f), ucxDevices); got != "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,eno3" {
		t.Errorf("devices %q", got)
	}
	f.Lookup = lookupIn(map[string]string{ucxDevices: "mlx5_1:1"})
	for _, v := range Plan(f).Vars {
		if v.Name == ucxDevices && v.Reason != "unchanged: it names mlx5_1:1" {
			t.Errorf("%+v", v)
		}
	}
}
