package nccl

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
)

// TestAgree checks the link layer that all hosts of a job can use, the reason if RDMA is not
// usable, and the warnings about hosts with missing ports.
func TestAgree(t *testing.T) {
	down := func(h *hostBuilder, n int) *hostBuilder {
		for i := range n {
			h.RDMA[i].Ports[0].State = "DOWN"
		}
		return h
	}
	tests := []struct {
		name     string
		hosts    []*hostBuilder
		links    []string
		layer    string
		without  string   // substring
		warnings []string // one substring each
	}{
		{"InfiniBand on all", []*hostBuilder{dgx("a"), dgx("b")}, []string{"eno3", "eno3"}, infiniBand, "", nil},
		{"no adapters at all", []*hostBuilder{plainHost("a", 1), plainHost("b", 2)}, []string{"eth0", "eth0"}, "", "", nil},
		{"RoCE on all", []*hostBuilder{roce("a", 1, 80, 81), roce("b", 2, 80, 81)}, []string{"bond0", "bond0"}, ethernet, "", nil},
		{"one host without", []*hostBuilder{roce("a", 1, 80), plainHost("b", 2), roce("c", 3, 80)}, []string{"bond0", "eth0", "bond0"}, "",
			"no usable RoCE port on b (no such adapter)", []string{"but 2 of 3 hosts have one: NCCL uses the slower TCP on all hosts; exclude or repair b"}},
		{"one host's port is down", []*hostBuilder{roce("a", 1, 80), down(roce("b", 2, 80), 1)}, []string{"bond0", "bond0"}, "",
			"no usable RoCE port on b (mlx5_0:1: the port is down)", []string{"repair b"}},
		{"fewer ports on one host", []*hostBuilder{dgx("a"), down(dgx("b"), 2)}, []string{"eno3", "eno3"}, infiniBand, "",
			[]string{"fewer than 8 usable InfiniBand ports on b (6)"}},
		{"InfiniBand down on one host, RoCE on both", []*hostBuilder{dgx("a"), down(dgx("b"), 8)}, []string{"eno3", "eno3"}, ethernet, "", nil},
		{"several hosts without", []*hostBuilder{roce("a", 1, 80), plainHost("b", 2), plainHost("c", 3), plainHost("d", 4)}, []string{"bond0", "eth0", "eth0", "eth0"}, "",
			"no usable RoCE port on b, c, and d (no such adapter)", []string{"exclude or repair b, c, and d"}},
		{"one layer on each host", []*hostBuilder{roce("a", 1, 80), infiniBandHost("b", 2, 0)}, []string{"bond0", "eno1"}, "",
			"no usable InfiniBand port on a", []string{"but 1 of 2 hosts have one"}},
		{"faster RoCE on the chosen interface of all", []*hostBuilder{infiniBandHost("a", 1, 200000), infiniBandHost("b", 2, 200000)}, []string{"eno1", "eno1"}, ethernet, "", nil},
		{"slower RoCE on the chosen interface of all", []*hostBuilder{infiniBandHost("a", 1, 50000), infiniBandHost("b", 2, 50000)}, []string{"eno1", "eno1"}, infiniBand, "", nil},
		{"equal RoCE on the chosen interface of all", []*hostBuilder{infiniBandHost("a", 1, 100000), infiniBandHost("b", 2, 100000)}, []string{"eno1", "eno1"}, infiniBand, "", nil},
		{"faster RoCE on one host", []*hostBuilder{infiniBandHost("a", 1, 200000), infiniBandHost("b", 2, 50000)}, []string{"eno1", "eno1"}, infiniBand, "", nil},
		{"rails without a way between the last hosts", []*hostBuilder{roce("a", 1, 80), roce("b", 2, 80), roce("c", 3, 90)}, []string{"bond0", "bond0", "bond0"}, ethernet,
			"no RoCE port of b has a route to a RoCE port of c", []string{"give the ports addresses in one network, or routes"}},
		{"rails without a way between hosts", []*hostBuilder{roce("a", 1, 80), roce("b", 2, 90)}, []string{"bond0", "bond0"}, ethernet,
			"no RoCE port of a has a route to a RoCE port of b", []string{"give the ports addresses in one network, or routes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The last adapter of these hosts is on the same fabric but far from all GPUs. If
			// the ports near the GPUs were down, it would be the only usable port.
			if tt.name == "InfiniBand down on one host, RoCE on both" {
				h := tt.hosts[1]
				h.RDMA[len(h.RDMA)-1].Ports[0].State = "DOWN"
				tt.warnings = []string{"no usable InfiniBand port on b (mlx5_0:1: the port is down), so all hosts use RoCE"}
			}
			job := agree(t, tt.hosts, tt.links...)
			if job.Layer != tt.layer || job.Hosts != len(tt.hosts) {
				t.Errorf("layer %q of %d hosts, want %q", job.Layer, job.Hosts, tt.layer)
			}
			if (job.WithoutRDMA == "") != (tt.without == "") || !strings.Contains(job.WithoutRDMA, tt.without) {
				t.Errorf("without RDMA because %q, want %q", job.WithoutRDMA, tt.without)
			}
			if len(job.Warnings) != len(tt.warnings) {
				t.Fatalf("warnings %q, want %q", job.Warnings, tt.warnings)
			}
			for i, w := range tt.warnings {
				if !strings.Contains(job.Warnings[i], w) {
					t.Errorf("warning %q, want %q", job.Warnings[i], w)
				}
			}
			// The agreement applies to each host: if RDMA is off on one host, it is off on
			// all.
			for i, h := range tt.hosts {
				f := facts(h, tt.links[i])
				f.Job = job
				e := Plan(f)
				if off := valueOf(e, ibDisable) == "1"; off != (tt.without != "") {
					t.Errorf("%s: InfiniBand off %v", h.Host, off)
				}
				if hca := valueOf(e, ibHCA); (hca != "") != (job.Layer != "" && tt.without == "") {
					t.Errorf("%s: adapters %q", h.Host, hca)
				}
			}
		})
	}
	if _, err := Agree(make([]netif.Inventory, 2), make([]netif.Choice, 1)); err == nil {
		t.Error("2 hosts with 1 choice are no error")
	}
}

// infiniBandHost has an InfiniBand port of 100 Gb/s and an Ethernet interface, which is a RoCE port of
// the given rate if the rate is not 0.
func infiniBandHost(name string, last, roceRate int) *hostBuilder {
	h := newHost(name).link(netif.Link{Name: "eno1", Speed: roceRate, PCI: "0000:01:00.0"}, fmt.Sprintf("10.0.0.%d/24", last)).
		adapter("mlx5_0", "0000:02:00.0", infiniBand, "ACTIVE", 100000)
	if roceRate > 0 {
		h.adapter("mlx5_1", "0000:01:00.0", ethernet, "ACTIVE", roceRate)
	}
	return h
}

// TestIBDisable checks that Plan keeps the user's NCCL_IB_DISABLE and warns if it contradicts the
// hardware of the job.
func TestIBDisable(t *testing.T) {
	without := agree(t, []*hostBuilder{roce("n1", 1, 80), plainHost("n2", 2)}, "bond0", "eth0")
	tests := []struct {
		name, value string
		job         Job
		hca         bool
		wrong       bool
	}{
		{"off by the user", "1", Job{}, false, true},
		{"off by the user, as it has to be", "1", without, false, false},
		{"on by the user, where a host lacks it", "0", without, true, true},
		{"on by the user", "0", Job{}, true, false},
	}
	for _, tt := range tests {
		f := facts(roce("n1", 1, 80), "bond0")
		f.Job, f.Lookup = tt.job, lookupIn(map[string]string{ibDisable: tt.value})
		e := Plan(f)
		i := slices.IndexFunc(e.Vars, func(v Var) bool { return v.Name == ibDisable })
		if i < 0 || e.Vars[i].Value != tt.value || e.Vars[i].Source != User || e.Vars[i].Wrong != tt.wrong {
			t.Errorf("%s: %+v", tt.name, e.Vars)
		}
		if got := valueOf(e, ibHCA) != ""; got != tt.hca {
			t.Errorf("%s: adapters %q", tt.name, valueOf(e, ibHCA))
		}
	}
}

// TestAgreeScale checks that Agree handles 1,000 hosts with eight ports each within a minute.
func TestAgreeScale(t *testing.T) {
	var hosts []netif.Inventory
	var choices []netif.Choice
	for i := range 1000 {
		h := dgx(fmt.Sprintf("n%d", i))
		hosts, choices = append(hosts, h.Inventory), append(choices, h.choose("eno3"))
	}
	began := time.Now()
	job, err := Agree(hosts, choices)
	if err != nil || job.Layer != infiniBand {
		t.Fatal(job, err)
	}
	t.Logf("%s for 1000 hosts", time.Since(began))
	if took := time.Since(began); took > time.Minute { // usually below a second
		t.Errorf("agreeing took %s", took)
	}
}
