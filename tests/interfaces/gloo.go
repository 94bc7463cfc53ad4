package interfaces

import (
	"net/netip"

	"github.com/ddpbatch/ddpbatch/netif"
)

// HostName says what a host's own name resolves to on it; the zero address is
// that it does not resolve. No inventory holds it: it is the files' and DNS's.
type HostName func(netif.Inventory) netip.Addr

// InDNS is a name that stands for the address of the default route, as DNS, DHCP
// and cloud images have it.
func InDNS(inv netif.Inventory) netip.Addr {
	_, src := route(inv, outside)
	return src
}

// InHosts is a name that /etc/hosts gives 127.0.1.1, as Debian's and Ubuntu's
// installers write it.
func InHosts(netif.Inventory) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, 1}) }

// outside is any address beyond the host's own networks: the one that Ray uses.
var outside = netip.AddrFrom4([4]byte{8, 8, 8, 8})

// Gloo is Gloo (3bdfabf: lookupAddrForHostname in gloo/transport/tcp/device.cc)
// under PyTorch 2 (createDefaultDevice in ProcessGroupGloo.cpp) without
// GLOO_SOCKET_IFNAME: the first address of the host's own name that can be bound,
// else 127.0.0.1 with a warning.
//
// Left out: names with several addresses, and the order of IPv4 and IPv6.
func Gloo(name HostName) func(Pair) Pick {
	return func(p Pair) Pick {
		if a := name(p.Here); a.IsValid() {
			if u, own := owner(p.Here, a); own {
				return Pick{Uses: []Use{u}}
			}
		}
		u, _ := owner(p.Here, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		return Pick{
			Uses:     []Use{u},
			Warnings: []string{"Unable to resolve hostname to a (local) address. Using the loopback address as fallback."},
		}
	}
}
