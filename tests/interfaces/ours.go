package interfaces

import (
	"net/netip"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Told models ddpbatch netif --peer, which has the inventory of one host and the address of
// another.
func Told(p Pair) Pick {
	c, err := netif.Choose(p.Here, []netip.Addr{p.Peer}, netif.Request{})
	return ours(c, err)
}

// Ours models ddpbatch in a job, where the two hosts agree.
func Ours(p Pair) Pick {
	hosts := []netif.Inventory{p.Here, p.There}
	if p.alone() {
		hosts = hosts[:1]
	}
	choices, err := netif.Agree(hosts, netif.Request{})
	if err != nil {
		return ours(netif.Choice{}, err)
	}
	return ours(choices[0], nil)
}

func ours(c netif.Choice, err error) Pick {
	if err != nil {
		return Pick{Failed: err.Error()}
	}
	return Pick{Uses: []Use{{c.Interface, netip.PrefixFrom(c.Addr, c.Prefix.Bits())}}, Warnings: c.Warnings}
}
