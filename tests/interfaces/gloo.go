package interfaces

import (
	"net/netip"

	"github.com/ddpbatch/ddpbatch/netif"
)

// A HostName returns the address to which a host's own name resolves on that host, or the zero
// address if it does not resolve. Inventories do not contain it, because it comes from /etc/hosts
// or DNS.
type HostName func(netif.Inventory) netip.Addr

// InDNS resolves the host name to the address of the default route, as DNS, DHCP, and cloud images
// do.
func InDNS(inv netif.Inventory) netip.Addr {
	_, src := route(inv, outside)
	return src
}

// InHosts resolves the host name to 127.0.1.1, as in /etc/hosts of the Debian and Ubuntu
// installers.
func InHosts(netif.Inventory) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, 1}) }

// outside is an address beyond the host's own subnets, the one that Ray uses.
var outside = netip.AddrFrom4([4]byte{8, 8, 8, 8})

// Gloo models Gloo (3bdfabf: lookupAddrForHostname in gloo/transport/tcp/device.cc) in PyTorch 2
// (createDefaultDevice in ProcessGroupGloo.cpp) without GLOO_SOCKET_IFNAME. It selects the first
// address of the host's own name that can be bound. Otherwise it selects 127.0.0.1 with a warning.
//
// The model omits names with several addresses, and the order of IPv4 and IPv6.
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
