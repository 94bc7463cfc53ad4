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

// CollectOptions holds the options of [Collect].
type CollectOptions struct {
	SysRoot string // mount point of sysfs; "" is /sys
}

// dumpTries limits the retries of a netlink dump that the kernel could not complete because of
// a concurrent change.
const dumpTries = 10

// Collect reads the inventory of this host, in the network namespace of the calling thread.
// Links, addresses, policy rules, and the routing tables of those rules come from netlink.
// Speed, driver, PCI path, RDMA adapters, and GPUs come from sysfs. The first three are
// missing if sysfs shows a different namespace, which can happen in a container.
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
	byIndex := make(map[int]int, len(links)) // kernel index to index in inv.Links
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

// dump repeats a netlink dump until no concurrent change interrupts it.
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
		out.Kind = "tun" // the kernel's term
	}
	for bit, flag := range map[uint32]Flags{unix.IFF_UP: Up, unix.IFF_RUNNING: Running, unix.IFF_LOWER_UP: LowerUp} {
		if at.RawFlags&bit != 0 {
			out.Flags |= flag
		}
	}
	return out
}

// relate sets the master and the parent of a link. For a veth or netkit, the kernel reports
// the other end as its parent, which is not a lower device. A parent with a namespace ID is in
// another namespace. relate ignores both.
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

// isSettled reports whether an address is usable and stays so. Duplicate address detection
// must have completed without a duplicate, and the address must not be deprecated.
func isSettled(a netlink.Addr) bool {
	unusable := unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	if a.IP.To4() == nil {
		unusable |= unix.IFA_F_TEMPORARY // the same bit means "secondary" for IPv4
	}
	return a.Flags&unusable == 0
}

// routesOf converts a kernel route into one Route per next hop.
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
