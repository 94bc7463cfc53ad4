package interfaces

import (
	"net/netip"

	"github.com/ddpbatch/ddpbatch/netif"
)

// WithPeer models ddpbatch netif --peer, which has the inventory of one host and the address of
// another.
func WithPeer(p Pair) Pick {
	c, err := netif.Choose(p.Here, []netip.Addr{p.Peer}, netif.Request{})
	return pickOf(c, err)
}

// Agreed models ddpbatch in a job, where the two hosts agree.
func Agreed(p Pair) Pick {
	hosts := []netif.Inventory{p.Here, p.There}
	if p.isSingleHost() {
		hosts = hosts[:1]
	}
	choices, err := netif.Agree(hosts, netif.Request{})
	if err != nil {
		return pickOf(netif.Choice{}, err)
	}
	return pickOf(choices[0], nil)
}

func pickOf(c netif.Choice, err error) Pick {
	if err != nil {
		return Pick{Failed: err.Error()}
	}
	return Pick{Uses: []Use{{c.Interface, netip.PrefixFrom(c.Addr, c.Prefix.Bits())}}, Warnings: c.Warnings}
}
