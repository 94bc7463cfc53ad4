package launch

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// TestDecideNetwork checks that each rank receives the interface of its node.
func TestDecideNetwork(t *testing.T) {
	encode := func(reports ...nodeReport) (out [][]byte) {
		for _, r := range reports {
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		return out
	}
	a, b := node(0, "10.20.0.1/24"), node(1, "10.20.0.2/24")
	second := nodeReport{Node: 1, Host: "n2"}
	decideNetwork := func(payloads [][]byte) ([][]byte, error) {
		return newNegotiation(&jobs.Job{}, &sites.Profile{}, func(rundir.Network) error { return nil }, func(string) {}).decideNetwork(payloads)
	}
	replies, err := decideNetwork(encode(a, second, b, nodeReport{Node: 0}))
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range []string{"fast0", "fast1", "fast1", "fast0"} {
		var got networkDecision
		if err := json.Unmarshal(replies[rank], &got); err != nil || got.Choice.Interface != want {
			t.Errorf("rank %d: %s, %v; want %s", rank, got.Choice.Interface, err, want)
		}
	}
	for want, payloads := range map[string][][]byte{
		"two ranks report":                      encode(a, a),
		"no rank reports the network of node 0": encode(b),
		"no rank reports a network":             encode(second),
		"rank 1 is on node 7 of 1":              encode(a, nodeReport{Node: 7}),
		"decode network report of rank 0":       {[]byte("{")},
		"choose a common network: ":             encode(a, node(1, "192.168.7.2/24")),
	} {
		if _, err := decideNetwork(payloads); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestReachableAddresses checks that ranks use the management network to reach the launcher,
// if there is one: the address of the interface with the default route comes first.
func TestReachableAddresses(t *testing.T) {
	inv := *node(0, "10.20.0.1/24").Inventory
	inv.Links = append(inv.Links, netif.Link{Index: 3, Name: "eth0", Addrs: []netip.Prefix{
		netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("10.10.0.1/24"), netip.MustParsePrefix("fd00::1/64")}})
	if got := reachableAddresses(inv); !slices.Equal(got, []string{"10.20.0.1", "10.10.0.1", "fd00::1"}) {
		t.Errorf("without a default route: %q", got)
	}
	inv.Routes = []netif.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Dev: "eth0"}}
	if got := reachableAddresses(inv); !slices.Equal(got, []string{"10.10.0.1", "fd00::1", "10.20.0.1"}) {
		t.Errorf("with a default route on eth0: %q", got)
	}
}
