package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// isDummy reports whether a link exists only to hold an address.
func isDummy(index int) bool {
	l, err := netlink.LinkByIndex(index)
	return err == nil && l.Type() == "dummy"
}

// queryKernel queries routes and the neighbor table. Fields stay empty if a query fails, because
// a probe is useful without them.
func queryKernel(ctx context.Context, from, to netip.Addr) (k Kernel) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return k
	}
	defer h.Close()
	wait := time.Second
	if deadline, set := ctx.Deadline(); set {
		wait = max(time.Until(deadline), time.Millisecond)
	}
	if h.SetSocketTimeout(wait) != nil {
		return k
	}
	name := func(index int) string {
		if l, err := h.LinkByIndex(index); err == nil {
			return l.Attrs().Name
		}
		return ""
	}
	peer := net.IP(to.AsSlice())
	bound := &netlink.RouteGetOptions{SrcAddr: net.IP(from.AsSlice())}
	bare := &netlink.RouteGetOptions{}
	if to.Zone() != "" {
		bound.Oif, bare.Oif = to.Zone(), to.Zone()
	}
	if routes, err := h.RouteGetWithOptions(peer, bare); err == nil && len(routes) > 0 {
		k.BareLeaves, k.BareSource = name(routes[0].LinkIndex), addrOf(routes[0].Src)
	}
	routes, err := h.RouteGetWithOptions(peer, bound)
	if err != nil {
		k.Refuses = err.Error()
		return k
	}
	if len(routes) == 0 {
		return k
	}
	k.Leaves, k.Via = name(routes[0].LinkIndex), addrOf(routes[0].Gw)
	next := peer
	if k.Via.IsValid() {
		next = routes[0].Gw
	}
	family := netlink.FAMILY_V4
	if to.Is6() {
		family = netlink.FAMILY_V6
	}
	entries, err := h.NeighList(routes[0].LinkIndex, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return k
	}
	for _, n := range entries {
		if n.IP.Equal(next) {
			k.Neighbor, k.MAC = neighborState(n.State), n.HardwareAddr.String()
		}
	}
	return k
}

var neighborStates = map[int]string{
	netlink.NUD_INCOMPLETE: neighborIncomplete, netlink.NUD_FAILED: neighborFailed, netlink.NUD_REACHABLE: "reachable", netlink.NUD_STALE: "stale",
	netlink.NUD_DELAY: "delay", netlink.NUD_PROBE: "probe", netlink.NUD_NOARP: "noarp", netlink.NUD_PERMANENT: "permanent",
}

// neighborState formats a state like "ip neighbour".
func neighborState(state int) string {
	if name, ok := neighborStates[state]; ok {
		return name
	}
	return fmt.Sprintf("state %d", state)
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
