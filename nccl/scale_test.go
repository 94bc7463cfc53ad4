package nccl

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
)

// TestPlanScale checks that Plan handles a host with 64 links and 10,000 routes within a second.
func TestPlanScale(t *testing.T) {
	h := roce("n1", 1, 80, 81, 82, 83, 84, 85, 86, 87)
	for i := len(h.Links); i < 64; i++ {
		h.link(netif.Link{Name: fmt.Sprintf("veth%d", i), Kind: "veth"}, fmt.Sprintf("10.244.%d.1/24", i))
	}
	for i := range 10000 {
		h.Routes = append(h.Routes, netif.Route{Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), 0}), 24), Dev: "veth9"})
	}
	// Only the last routes connect the rails.
	for i := range 8 {
		h.Routes = append(h.Routes, netif.Route{Dst: netip.MustParsePrefix("29.0.0.0/8"), Dev: fmt.Sprintf("eth%d", i)})
	}
	f := facts(h, "bond0")
	best := time.Hour
	for range 5 {
		began := time.Now()
		if e := Plan(f); valueOf(e, ibHCA) == "" || valueOf(e, crossNIC) != "" {
			t.Fatalf("%+v", e)
		}
		best = min(best, time.Since(began))
	}
	t.Logf("64 links, %d routes: %s", len(h.Routes), best)
	if best > time.Second { // usually milliseconds; the limit is for a busy machine
		t.Errorf("planning took %s", best)
	}
}
