package nccl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// aside is a port that is not for NCCL's data, and why.
type aside struct {
	rail rail
	why  string
}

// survey sorts the RDMA ports of a host into those for NCCL's data and the rest:
// ports without carrier, management and storage adapters. layer is that which
// the hosts of the job have agreed on; empty to take that of this host. Ports of
// excluded interfaces are for nothing.
func survey(inv *netif.Inventory, c *netif.Choice, layer string, exclude []string) (rails []rail, rest []aside) {
	rails = ports(inv)
	all := slices.Clone(rails)
	drop := func(why func(*rail) string) {
		rails = slices.DeleteFunc(rails, func(r rail) bool {
			reason := why(&r)
			if reason != "" {
				rest = append(rest, aside{r, reason})
			}
			return reason != ""
		})
	}
	drop(func(r *rail) string {
		switch {
		case r.layer != infiniBand && r.layer != ethernet:
			return "it is neither InfiniBand nor RoCE"
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
			return fmt.Sprintf("it is %s, and NCCL cannot join it with %s", speak(r.layer), speak(layer))
		case r.layer == ethernet && !r.hasAddress():
			return "RoCE needs an IP address, and it has none here"
		}
		return ""
	})
	fastest := 0
	for i := range rails {
		fastest = max(fastest, rails[i].rate)
	}
	drop(func(r *rail) string {
		if r.rate >= 0 && 2*r.rate <= fastest {
			return fmt.Sprintf("it has %s, and others %s: for storage or management, or its cable is bad", gigabits(r.rate), gigabits(fastest))
		}
		return ""
	})
	best := largestSubnets(rails)
	drop(func(r *rail) string {
		if subnet := r.subnet(); len(best) > 0 && !slices.Contains(best, subnet) {
			return fmt.Sprintf("its InfiniBand subnet %s is another than that of most ports, %s", subnet, best[0])
		}
		return ""
	})
	all = slices.DeleteFunc(all, func(r rail) bool { return r.layer != layer })
	far := apartFromGPUs(rails, all, inv.GPUs)
	drop(func(r *rail) string {
		if far[r.String()] {
			return "no GPU is near it on the PCI bus, as every GPU is to another port: for storage"
		}
		return ""
	})
	return rails, rest
}

// layerOf is what carries the data. InfiniBand is there for nothing else; RoCE
// goes before it only where the chosen interface has it, and it is faster.
func layerOf(rails []rail, c *netif.Choice) string {
	total := map[string]int{}
	chosen := ""
	for i := range rails {
		r := &rails[i]
		if r.layer == ethernet && !r.hasAddress() {
			continue
		}
		total[r.layer] += max(r.rate, 1)
		if r.has(c) {
			chosen = r.layer
		}
	}
	if total[infiniBand] > 0 && !(chosen == ethernet && total[ethernet] > total[infiniBand]) {
		return infiniBand
	}
	return ethernet
}

// largestSubnets are the InfiniBand subnets with the most ports, by rate; there
// are several where each rail has its own.
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
