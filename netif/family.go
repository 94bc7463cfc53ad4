package netif

import (
	"fmt"
	"net/netip"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// A Family is an address family. The empty value means Auto.
type Family string

// The address families. Auto is IPv4 if it works, else IPv6.
const (
	Auto Family = "auto"
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "any family"
}

// has reports whether a belongs to the family.
func (f Family) has(a netip.Addr) bool {
	return f == IPv4 && a.Is4() || f == IPv6 && a.Is6()
}

// everywhere returns the destination of the default route.
func (f Family) everywhere() netip.Prefix {
	if f == IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// tries returns the families to try, in order.
func (f Family) tries() ([]Family, error) {
	switch f {
	case Auto, "":
		return []Family{IPv4, IPv6}, nil
	case IPv4, IPv6:
		return []Family{f}, nil
	}
	return nil, hints.Errorf("say auto, ipv4 or ipv6", "unknown address family %q", string(f))
}

// familyOf returns the address family that all peers share.
func familyOf(peers []netip.Addr) (Family, error) {
	var f Family
	for _, p := range peers {
		got := IPv4
		if p.Is6() {
			got = IPv6
		}
		if f != "" && f != got {
			return "", fmt.Errorf("peers are of two families: %s and %s", peers[0], p)
		}
		f = got
	}
	return f, nil
}
