package netif

import "fmt"

// mtuWarning returns a warning if the MTU of a network differs between hosts. A host with a
// smaller MTU may silently drop larger packets.
func (c *cluster) mtuWarning(n *network) []string {
	large, small, smaller := 0, 0, 0
	for i, r := range n.rates {
		if r.mtu > n.rates[large].mtu {
			large = i
		}
		if r.mtu < n.rates[small].mtu {
			small = i
		}
	}
	for _, r := range n.rates {
		if r.mtu < n.rates[large].mtu {
			smaller++
		}
	}
	if smaller == 0 {
		return nil
	}
	text := fmt.Sprintf("mtu differs: %d on %s (%s), %d on %s (%s)",
		n.rates[large].mtu, c.hosts[large].name, n.chosen[large].link.Name,
		n.rates[small].mtu, c.hosts[small].name, n.chosen[small].link.Name)
	if smaller > 1 {
		text += fmt.Sprintf(", less than the largest on %d hosts", smaller)
	}
	return []string{text + "; large packets may be lost, which looks like a hang: set one mtu on all hosts"}
}
