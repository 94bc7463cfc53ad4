package netif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CollectOptions says where Collect looks.
type CollectOptions struct {
	SysRoot string // where sysfs is mounted; "" is /sys
}

// dumpTries bounds how often a dump is asked for again that the kernel could
// not make in one piece, because something changed meanwhile.
const dumpTries = 10

// Collect reads the inventory of this host, in the network namespace of the
// calling thread: links, addresses, policy rules and the routing tables that
// decide from the kernel by netlink; speed, driver, place, RDMA adapters and GPUs
// from sysfs, the first three where it shows the same interfaces, which inside a
// container it may not.
func Collect(ctx context.Context, opts CollectOptions) (Inventory, error) {
	inv, err := collect(ctx, opts)
	if err != nil {
		return Inventory{}, fmt.Errorf("collecting network interfaces: %w", err)
	}
	return inv, nil
}

func collect(ctx context.Context, opts CollectOptions) (Inventory, error) {
	name, err := os.Hostname()
	if err != nil {
		return Inventory{}, fmt.Errorf("host name: %w", err)
	}
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Inventory{}, fmt.Errorf("opening a netlink socket: %w", err)
	}
	defer kernel.Close()
	if deadline, set := ctx.Deadline(); set {
		if err := kernel.SetSocketTimeout(max(time.Until(deadline), time.Millisecond)); err != nil {
			return Inventory{}, fmt.Errorf("netlink socket: %w", err)
		}
	}
	inv := Inventory{Host: name, Links: []Link{}, Routes: []Route{}}
	links, err := dump(ctx, "links", kernel.LinkList)
	if err != nil {
		return Inventory{}, err
	}
	sys := sysfs{root: opts.SysRoot}
	byIndex := make(map[int]int, len(links)) // kernel index to place in inv.Links
	for _, l := range links {
		byIndex[l.Attrs().Index] = len(inv.Links)
		inv.Links = append(inv.Links, linkOf(l))
	}
	for i, l := range links {
		relate(inv.Links, byIndex, i, l)
		sys.fill(&inv.Links[i], l.Attrs().HardwareAddr)
	}
	addrs, err := dump(ctx, "addresses", func() ([]netlink.Addr, error) { return kernel.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return Inventory{}, err
	}
	for _, a := range addrs {
		if i, known := byIndex[a.LinkIndex]; known && isSettled(a) {
			if p, ok := prefixOf(a.IPNet); ok {
				inv.Links[i].Addrs = append(inv.Links[i].Addrs, p)
			}
		}
	}
	rules, tables, err := collectRules(ctx, kernel)
	if err != nil {
		return Inventory{}, err
	}
	inv.Rules = rules
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		for _, table := range tables {
			routes, err := dump(ctx, "routes", func() ([]netlink.Route, error) {
				return kernel.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
			})
			if err != nil {
				return Inventory{}, err
			}
			for _, r := range routes {
				inv.Routes = append(inv.Routes, routesOf(r, inv.Links, byIndex)...)
			}
		}
	}
	inv.RDMA = sys.rdma()
	inv.GPUs = sys.gpus()
	return inv, inv.validate()
}

// dump asks the kernel for a list until it comes in one piece.
func dump[T any](ctx context.Context, what string, list func() (T, error)) (T, error) {
	for range dumpTries {
		if err := ctx.Err(); err != nil {
			return *new(T), fmt.Errorf("%s: %w", what, err)
		}
		found, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			if err != nil {
				return *new(T), fmt.Errorf("%s: %w", what, err)
			}
			return found, nil
		}
	}
	return *new(T), fmt.Errorf("%s: they kept changing while they were read", what)
}

func linkOf(l netlink.Link) Link {
	at := l.Attrs()
	out := Link{
		Index:  at.Index,
		Name:   at.Name,
		Kind:   l.Type(),
		ARPHRD: at.EncapType,
		Oper:   at.OperState.String(),
		MTU:    at.MTU,
		Speed:  -1,
		PCI:    at.ParentDev,
		Addrs:  []netip.Prefix{},
	}
	switch out.Kind {
	case "device":
		out.Kind = ""
	case "tuntap":
		out.Kind = "tun" // the kernel's word
	}
	for bit, flag := range map[uint32]Flags{unix.IFF_UP: Up, unix.IFF_RUNNING: Running, unix.IFF_LOWER_UP: LowerUp} {
		if at.RawFlags&bit != 0 {
			out.Flags |= flag
		}
	}
	return out
}

// relate fills in what a link is part of and what it stands on. The link that
// the kernel names for a veth or netkit is the other end, which it does not
// stand on, and one with a namespace id is in another namespace.
func relate(links []Link, byIndex map[int]int, at int, l netlink.Link) {
	attrs := l.Attrs()
	if master, known := byIndex[attrs.MasterIndex]; known {
		links[at].Master = links[master].Name
	}
	pair := links[at].Kind == "veth" || links[at].Kind == "netkit"
	if parent, known := byIndex[attrs.ParentIndex]; known && !pair && attrs.NetNsID < 0 && parent != at {
		links[at].Parent = links[parent].Name
	}
}

// isSettled says whether an address can be used, and goes on to be: it is
// neither being checked for a twin, nor found to have one, nor expiring.
func isSettled(a netlink.Addr) bool {
	unusable := unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	if a.IP.To4() == nil {
		unusable |= unix.IFA_F_TEMPORARY // the same bit means "secondary" for IPv4
	}
	return a.Flags&unusable == 0
}

// routesOf turns one kernel route into one for each next hop.
func routesOf(r netlink.Route, links []Link, byIndex map[int]int) []Route {
	dst, ok := prefixOf(r.Dst)
	if !ok || dst.Addr().IsMulticast() || dst.Addr().IsLinkLocalUnicast() {
		return nil
	}
	out := Route{Dst: dst, Src: addrOf(r.Src), Metric: r.Priority, Table: mainIsZero(r.Table)}
	switch r.Type {
	case unix.RTN_THROW:
		out.Throw = true
		return []Route{out}
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT:
		return []Route{out}
	case unix.RTN_UNICAST:
	default:
		return nil
	}
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via, Flags: r.Flags}}
	}
	var routes []Route
	for _, hop := range hops {
		i, known := byIndex[hop.LinkIndex]
		if !known || hop.Flags&unix.RTNH_F_DEAD != 0 {
			continue
		}
		out.Dev = links[i].Name
		out.Via = addrOf(hop.Gw)
		if via, other := hop.Via.(*netlink.Via); other {
			out.Via = addrOf(via.Addr)
		}
		routes = append(routes, out)
	}
	return routes
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	bits, _ := n.Mask.Size()
	p := netip.PrefixFrom(addrOf(n.IP), bits)
	return p, p.IsValid()
}
