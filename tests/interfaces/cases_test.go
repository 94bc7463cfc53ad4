package interfaces

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
)

// collected is a host from a report or a document.
type collected struct {
	ID     string          `json:"id"`
	Source string          `json:"source"`
	Links  json.RawMessage `json:"links"`
	Routes json.RawMessage `json:"routes"`
	Peers  []netip.Addr    `json:"peers"`
	Want   struct {
		Interface string     `json:"ifname"`
		Src       netip.Addr `json:"src"`
	} `json:"want"`
	NCCL struct {
		LE227 []string `json:"le_2_27"`
		GE228 []string `json:"ge_2_28"`
	} `json:"nccl_default"`

	pair  Pair
	right Use
}

// shapes describes each collected host.
var shapes = map[string]string{
	"01-docker-veth-host":              "cloud VM with Docker running a container",
	"02-inside-container-eth0-is-veth": "inside a Kubernetes pod",
	"04-two-nics-same-subnet":          "1 and 10 Gb/s in one subnet",
	"05-libvirt-virbr0":                "libvirt's idle bridge",
	"07-k8s-cilium-sriov-ibs":          "Cilium, SR-IOV, InfiniBand without addresses",
	"08-ib0-linklocal-v6-only":         "InfiniBand with a link-local address only",
	"09-ipoib-good":                    "1 Gb/s Ethernet and IP over InfiniBand",
	"12-slingshot-4xhsn":               "1 Gb/s management and four Slingshot links",
	"13-dgx-h100":                      "DGX: BMC, management, eight InfiniBand, two storage",
	"14-roce-per-rail-subnets":         "four RoCE rails, each with its own /31",
	"15-bond-vlan-qinq":                "bond with VLANs on it",
	"17-aws-p5-efa":                    "AWS p5 with EFA and idle Docker",
	"19-gcp-a3-tcpx":                   "GCP A3: every address a /32",
	"20-l3-bgp-unnumbered":             "address on lo, two unnumbered links",
	"22-wireless-only":                 "wireless only, Docker idle",
	"25-names-differ-nodeA":            "xgbe0 here is xgbe4 on the other host",
	"26-dgx-spark-two-virtual-nics":    "DGX Spark: one port seen twice",
	"27-mtu-mismatch-node":             "MTU 9000 here, 1500 on the other host",
	"28-single-node-offline":           "one host, no network",
	"30-firecracker-ci":                "VM with bridges of its own",
}

// peers changes the other host if it differs from the collected one.
var peers = map[string]func(*netif.Inventory){
	// The report contains nothing else about the other host.
	"25-names-differ-nodeA": func(inv *netif.Inventory) {
		inv.Links = slices.DeleteFunc(inv.Links, func(l netif.Link) bool { return l.Name == "xgbe2" || l.Name == "xgbe4" })
		for i := range inv.Links {
			if inv.Links[i].Name == "xgbe0" {
				inv.Links[i].Name = "xgbe4"
			}
		}
		inv.Routes = []netif.Route{{
			Dst: netip.MustParsePrefix("0.0.0.0/0"), Dev: "xgbe4", Via: netip.MustParseAddr("10.9.0.254"), Src: netip.MustParseAddr("10.9.0.2"),
		}}
	},
	"27-mtu-mismatch-node": func(inv *netif.Inventory) {
		for i := range inv.Links {
			if inv.Links[i].Name == "eth0" {
				inv.Links[i].MTU = 1500
			}
		}
	},
}

func load(t *testing.T) []*collected {
	t.Helper()
	data, err := os.ReadFile("../../netif/testdata/netif_cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []*collected
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != len(shapes) {
		t.Fatalf("%d collected hosts, %d described in shapes", len(cases), len(shapes))
	}
	for _, c := range cases {
		text, err := json.Marshal(map[string]any{"links": c.Links, "routes": c.Routes})
		if err != nil {
			t.Fatal(err)
		}
		read, _, err := netif.ReadCases(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", c.ID, err)
		}
		here := read[0].Inventory
		if shapes[c.ID] == "" {
			t.Fatalf("%s: say in shapes what it is", c.ID)
		}
		c.pair = NewPair(here, c.Want.Src, c.Peers[0])
		if change := peers[c.ID]; change != nil {
			change(&c.pair.There)
		}
		c.right = RightUse(here, c.Want.Interface, c.Want.Src)
	}
	return cases
}

func find(t *testing.T, id string) *collected {
	t.Helper()
	for _, c := range load(t) {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("no collected host %q", id)
	return nil
}

// TestDefaultInterfaceFollowsNCCL checks that the interface that doctor reports as NCCL's default
// is the one that the model of NCCL's rule selects.
func TestDefaultInterfaceFollowsNCCL(t *testing.T) {
	for _, c := range load(t) {
		want := ""
		if pick := NCCL228(c.pair); pick.Failed == "" {
			want = pick.Uses[0].Link
		}
		if got := nccl.DefaultInterface(c.pair.Here); got != want {
			t.Errorf("%s: %q, want %q", c.ID, got, want)
		}
	}
}
