package nccl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// A skippedPort is a port that does not carry NCCL's data, with the reason.
type skippedPort struct {
	rail rail
	why  string
}

// survey divides the RDMA ports of a host into ports for NCCL's data and other ports: ports
// without a carrier, and management and storage adapters. layer is the link layer that all
// hosts support; if it is empty, survey uses this host's. Ports of excluded interfaces do not
// carry data.
func survey(inv *netif.Inventory, c *netif.Choice, layer string, exclude []string) (rails []rail, rest []skippedPort) {
	rails = ports(inv)
	all := slices.Clone(rails)
	drop := func(why func(*rail) string) {
		rails = slices.DeleteFunc(rails, func(r rail) bool {
			reason := why(&r)
			if reason != "" {
				rest = append(rest, skippedPort{r, reason})
			}
			return reason != ""
		})
	}
	drop(func(r *rail) string {
		switch {
		case r.layer != infiniBand && r.layer != ethernet:
			return "neither InfiniBand nor RoCE"
		case r.excluded(exclude):
			return "its interface is excluded"
		case !r.active:
			return fmt.Sprintf("the port is %s", strings.ToLower(r.state))
		}
		return ""
	})
	if layer == "" {
		layer = layerOf(rails, c)
	}
	drop(func(r *rail) string {
		switch {
		case r.layer != layer:
			return fmt.Sprintf("it is %s, and NCCL cannot combine it with %s", layerName(r.layer), layerName(layer))
		case r.layer == ethernet && !r.hasAddress():
			return "no IP address, which RoCE requires"
		}
		return ""
	})
	fastest := 0
	for i := range rails {
		fastest = max(fastest, rails[i].rate)
	}
	drop(func(r *rail) string {
		if r.rate >= 0 && 2*r.rate <= fastest {
			return fmt.Sprintf("it has %s and others have %s: a storage or management port, or a faulty cable", rateText(r.rate), rateText(fastest))
		}
		return ""
	})
	best := largestSubnets(rails)
	drop(func(r *rail) string {
		if subnet := r.subnet(); len(best) > 0 && !slices.Contains(best, subnet) {
			return fmt.Sprintf("its InfiniBand subnet %s differs from the subnet of most ports, %s", subnet, best[0])
		}
		return ""
	})
	all = slices.DeleteFunc(all, func(r rail) bool { return r.layer != layer })
	far := portsFarFromGPUs(rails, all, inv.GPUs)
	drop(func(r *rail) string {
		if far[r.String()] {
			return "no GPU is close to it on the PCI bus, and every GPU is close to a different port: a storage port"
		}
		return ""
	})
	return rails, rest
}

// layerOf returns the link layer for the data. InfiniBand has no other purpose. RoCE is
// preferred only if it is faster and the chosen interface uses it.
func layerOf(rails []rail, c *netif.Choice) string {
	total := map[string]int{}
	chosen := ""
	for i := range rails {
		r := &rails[i]
		if r.layer == ethernet && !r.hasAddress() {
			continue
		}
		total[r.layer] += max(r.rate, 1)
		if r.isBelow(c) {
			chosen = r.layer
		}
	}
	if total[infiniBand] > 0 && !(chosen == ethernet && total[ethernet] > total[infiniBand]) {
		return infiniBand
	}
	return ethernet
}

// largestSubnets returns the InfiniBand subnets with the highest total rate. There are several
// if each rail has its own subnet.
func largestSubnets(rails []rail) []string {
	total := map[string]int{}
	for i := range rails {
		if s := rails[i].subnet(); s != "" {
			total[s] += max(rails[i].rate, 1)
		}
	}
	most := 0
	for _, n := range total {
		most = max(most, n)
	}
	var best []string
	for s, n := range total {
		if n == most {
			best = append(best, s)
		}
	}
	slices.Sort(best)
	return best
}
