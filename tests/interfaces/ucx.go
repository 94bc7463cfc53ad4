package interfaces

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/netif"
)

// UCX models the tcp transport of UCX 1.21 without UCX_NET_DEVICES. The devices come from
// src/uct/tcp/tcp_iface.c (005be6c) and ucs_netif_get_addr, reachability from
// src/ucs/sys/netlink.c, and the lane for active messages from src/ucp/wireup/select.c. Devices are
// the links that are up and running and have an address that is not link-local, IPv4 before IPv6,
// except bridges. A device reaches an address of the other host if no other device has a route to
// it with a longer prefix. Loopback reaches loopback on one host only. The lowest latency wins. UCX
// computes it from the speed that the driver reports (100 Mb/s if it reports none). A tie goes to a
// device without the default route, then to the first name. UCX binds sockets to the device's
// address.
//
// The model omits InfiniBand and shared memory, which UCX prefers if they are available, further
// lanes for large messages, and the speed of the PCI slot.
func UCX(p Pair) Pick {
	here, isSingleHost := ucxDevices(p.Here), p.isSingleHost()
	if isSingleHost {
		p.There = p.Here
	}
	there := ucxDevices(p.There)
	best, bestLatency, bestRank := Use{}, 0.0, 0
	for _, d := range here {
		for _, r := range there {
			if !p.ucxReaches(d, r, isSingleHost) {
				continue
			}
			latency := ucxLatency(p.Here, d) + ucxLatency(p.There, r)
			rank := ucxRank(p.Here, d) + ucxRank(p.There, r)
			if best.Link == "" || cmp.Or(ucxCompare(latency, bestLatency), bestRank-rank) < 0 {
				best, bestLatency, bestRank = d, latency, rank
			}
		}
	}
	if best.Link == "" {
		return Pick{Failed: "Destination is unreachable"}
	}
	return Pick{Uses: []Use{best}}
}

func ucxDevices(inv netif.Inventory) []Use {
	var found []Use
	for _, u := range addresses(inv) {
		l := linkNamed(inv, u.Link)
		have := func(d Use) bool { return d.Link == u.Link }
		if !canCarryTraffic(l) || l.Kind == "bridge" || u.Addr.Addr().IsLinkLocalUnicast() || slices.ContainsFunc(found, have) {
			continue
		}
		found = append(found, u)
	}
	slices.SortStableFunc(found, func(a, b Use) int { return cmp.Compare(a.Link, b.Link) })
	return found
}

func (p Pair) ucxReaches(from, to Use, isSingleHost bool) bool {
	a := to.Addr.Addr()
	if from.Addr.Addr().Is4() != a.Is4() || from.Addr.Addr().IsLoopback() != a.IsLoopback() {
		return false
	}
	if a.IsLoopback() {
		return isSingleHost
	}
	longest, own := -1, -1
	for _, r := range allRoutes(p.Here) {
		if r.Dst.Contains(a) {
			longest = max(longest, r.Dst.Bits())
			if r.Dev == from.Link {
				own = max(own, r.Dst.Bits())
			}
		}
	}
	return own >= 0 && own == longest
}

// ucxLatency returns the latency of a device in seconds.
func ucxLatency(inv netif.Inventory, d Use) float64 {
	speed := linkNamed(inv, d.Link).Speed
	if speed <= 0 {
		speed = 100
	}
	return 576/(float64(speed)*1e6) + 5.2e-6 + 50e-6
}

// ucxCompare compares scores. Scores that differ by less than one millionth are equal.
func ucxCompare(a, b float64) int {
	if d := a - b; d > (a+b)*1e-6 || d < -(a+b)*1e-6 {
		return cmp.Compare(a, b)
	}
	return 0
}

// ucxRank returns the rank of a device in a tie. The higher rank wins.
func ucxRank(inv netif.Inventory, d Use) int {
	for _, r := range inv.Routes {
		if r.Dst.Bits() == 0 && r.Dst.Addr().Is4() && r.Dev == d.Link {
			return 0
		}
	}
	return 1
}
