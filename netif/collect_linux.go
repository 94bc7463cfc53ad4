package netif

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/netif/internal/rtnetlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Collect reads the inventory of this host, in the network namespace of the calling thread.
// Links, addresses, policy rules, and the routing tables of those rules come from netlink.
// Speed, driver, PCI path, RDMA adapters, and GPUs come from sysfs. The first three are
// missing if sysfs shows a different namespace, which can happen in a container.
func Collect(ctx context.Context) (Inventory, error) {
	inv, err := collect(ctx)
	if err != nil {
		return Inventory{}, fmt.Errorf("read network interfaces: %w", err)
	}
	return inv, nil
}

func collect(ctx context.Context) (Inventory, error) {
	name, err := os.Hostname()
	if err != nil {
		return Inventory{}, err
	}
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Inventory{}, fmt.Errorf("open netlink socket: %w", err)
	}
	defer kernel.Close()
	if deadline, set := ctx.Deadline(); set {
		if err := kernel.SetSocketTimeout(max(time.Until(deadline), time.Millisecond)); err != nil {
			return Inventory{}, fmt.Errorf("set timeout of netlink socket: %w", err)
		}
	}
	inv := Inventory{Host: name, Links: []Link{}, Routes: []Route{}}
	links, err := rtnetlink.Dump(ctx, "links", kernel.LinkList)
	if err != nil {
		return Inventory{}, err
	}
	sys := sysfs{root: "/sys"}
	byIndex := make(map[int]int, len(links)) // kernel index to index in inv.Links
	for _, l := range links {
		byIndex[l.Attrs().Index] = len(inv.Links)
		inv.Links = append(inv.Links, linkOf(l))
	}
	for i, l := range links {
		setMasterAndParent(inv.Links, byIndex, i, l)
		sys.fill(&inv.Links[i], l.Attrs().HardwareAddr)
	}
	addrs, err := rtnetlink.Dump(ctx, "addresses", func() ([]netlink.Addr, error) { return kernel.AddrList(nil, netlink.FAMILY_ALL) })
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
			routes, err := rtnetlink.Dump(ctx, "routes", func() ([]netlink.Route, error) {
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

// setMasterAndParent sets the master and the parent of a link. For a veth or netkit, the kernel
// reports the other end as its parent, which is not a lower device. A parent with a namespace ID
// is in another namespace. setMasterAndParent ignores both.
func setMasterAndParent(links []Link, byIndex map[int]int, at int, l netlink.Link) {
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

// collectRules returns the policy rules of both families, by priority, and the tables that
// they select, the main table first. It returns no rules if the host has only the kernel's
// default rules.
//
// It omits rules that cannot match this process's TCP traffic, or that also match ports, the
// type of service, or a tunnel, unless they are inverted and then match all connections. It also omits rules without an effect: VRF rules, and jumps to a
// rule that does not exist.
func collectRules(ctx context.Context, kernel *netlink.Handle) ([]Rule, []int, error) {
	var rules []Rule
	tables := []int{unix.RT_TABLE_MAIN}
	onlyDefaults := true
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := rtnetlink.Dump(ctx, "policy rules", func() ([]netlink.Rule, error) { return listRules(kernel, family) })
		if err != nil {
			return nil, nil, err
		}
		for _, k := range found {
			r, ok := ruleOf(k, family)
			if !ok || r.Goto != 0 && !slices.ContainsFunc(found, func(k netlink.Rule) bool { return k.Priority == r.Goto }) {
				continue
			}
			onlyDefaults = onlyDefaults && isKernelDefault(r)
			rules = append(rules, r)
			if r.hasTable() && r.Table != tableLocal && !slices.Contains(tables, r.Table) {
				tables = append(tables, r.Table)
			}
		}
	}
	if onlyDefaults {
		return nil, tables[:1], nil
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return a.Priority - b.Priority })
	return rules, tables, nil
}

// listRules returns the rules of the netlink library and adds each rule's type, which the
// library omits.
func listRules(kernel *netlink.Handle, family int) ([]netlink.Rule, error) {
	rules, err := kernel.RuleList(family)
	if err != nil {
		return nil, err
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(family))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
	if err != nil {
		return nil, err
	}
	if len(messages) != len(rules) {
		return nil, netlink.ErrDumpInterrupted
	}
	for i, m := range messages {
		attrs, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
		if err != nil {
			return nil, err
		}
		priority := uint32(0)
		for _, a := range attrs {
			if a.Attr.Type == nl.FRA_PRIORITY {
				priority = binary.NativeEndian.Uint32(a.Value)
			}
		}
		if int(priority) != rules[i].Priority {
			return nil, netlink.ErrDumpInterrupted
		}
		rules[i].Type = nl.DeserializeRtMsg(m).Type
	}
	return rules, nil
}

// isKernelDefault reports whether a rule is one of the kernel's three default rules.
func isKernelDefault(r Rule) bool {
	all := r.hasTable() && !r.Not && r.Suppress == nil && r.IIF == "" && r.OIF == "" && r.Mark == 0 && r.From.Bits() == 0 && !r.To.IsValid()
	switch r.Priority {
	case 0:
		return all && r.Table == tableLocal
	case 32766:
		return all && r.Table == tableMain
	case 32767:
		return all && r.Table == tableDefault
	}
	return false
}

// ruleOf converts a kernel rule. It reports false if the rule cannot affect a connection of this
// process, or matches ports, the type of service, or a tunnel. An inverted rule with such a condition
// matches all connections.
func ruleOf(k netlink.Rule, family int) (Rule, bool) {
	uid := int64(os.Getuid())
	fails := k.Dport != nil || k.Sport != nil || k.Tos != 0 || k.TunID != 0 || k.IPProto != 0 && k.IPProto != unix.IPPROTO_TCP ||
		k.UIDRange != nil && (uid < int64(k.UIDRange.Start) || uid > int64(k.UIDRange.End))
	switch {
	case k.Type == nl.FR_ACT_TO_TBL && k.Table == unix.RT_TABLE_UNSPEC || k.Type == nl.FR_ACT_NOP:
		return Rule{}, false
	case k.SuppressIfgroup >= 0 || fails && !k.Invert:
		return Rule{}, false
	case fails: // the kernel inverts the result of all conditions together (fib_rule_match)
		k.Src, k.Dst, k.IifName, k.OifName, k.Mark, k.Invert = nil, nil, "", "", 0, false
	}
	r := Rule{Priority: k.Priority, From: rulePrefix(k.Src), To: rulePrefix(k.Dst), IIF: k.IifName, OIF: k.OifName, Mark: k.Mark, Table: k.Table, Not: k.Invert}
	switch k.Type {
	case nl.FR_ACT_BLACKHOLE:
		r.Action = Blackhole
	case nl.FR_ACT_UNREACHABLE:
		r.Action = Unreachable
	case nl.FR_ACT_PROHIBIT:
		r.Action = Prohibit
	case nl.FR_ACT_GOTO:
		r.Goto = k.Goto
	}
	if !r.hasTable() {
		r.Table = 0
	} else if k.SuppressPrefixlen >= 0 && k.SuppressPrefixlen < math.MaxInt32 {
		r.Suppress = &k.SuppressPrefixlen
	}
	if !r.From.IsValid() && !r.To.IsValid() {
		r.From = IPv4.defaultPrefix()
		if family == netlink.FAMILY_V6 {
			r.From = IPv6.defaultPrefix()
		}
	}
	return r, true
}

func rulePrefix(n *net.IPNet) netip.Prefix {
	p, _ := prefixOf(n)
	return p
}
