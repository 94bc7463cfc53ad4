package netif

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// collectRules returns the policy rules of both families, by priority, and the tables that
// they select, the main table first. It returns no rules if the host has only the kernel's
// default rules.
//
// It omits rules that cannot match this process's TCP traffic. It also omits rules without an
// effect: VRF rules, and jumps to a rule that does not exist.
func collectRules(ctx context.Context, kernel *netlink.Handle) ([]Rule, []int, error) {
	var rules []Rule
	tables := []int{unix.RT_TABLE_MAIN}
	own := true
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := dump(ctx, "policy rules", func() ([]netlink.Rule, error) { return listRules(kernel, family) })
		if err != nil {
			return nil, nil, err
		}
		for _, k := range found {
			r, ok := ruleOf(k, family)
			if !ok || r.Goto != 0 && !slices.ContainsFunc(found, func(k netlink.Rule) bool { return k.Priority == r.Goto }) {
				continue
			}
			own = own && isKernels(r)
			rules = append(rules, r)
			if r.hasTable() && r.Table != tableLocal && !slices.Contains(tables, r.Table) {
				tables = append(tables, r.Table)
			}
		}
	}
	if own {
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

// isKernels reports whether a rule is one of the kernel's three default rules.
func isKernels(r Rule) bool {
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

// ruleOf converts a kernel rule. It reports false if the rule cannot affect a connection of
// this process.
func ruleOf(k netlink.Rule, family int) (Rule, bool) {
	switch {
	case k.Type == nl.FR_ACT_TO_TBL && k.Table == unix.RT_TABLE_UNSPEC || k.Type == nl.FR_ACT_NOP:
		return Rule{}, false
	case k.Dport != nil || k.Sport != nil || k.Tos != 0 || k.TunID != 0 || k.SuppressIfgroup >= 0:
		return Rule{}, false
	case k.IPProto != 0 && k.IPProto != unix.IPPROTO_TCP:
		return Rule{}, false
	case k.UIDRange != nil:
		if uid := os.Getuid(); int64(uid) < int64(k.UIDRange.Start) || int64(uid) > int64(k.UIDRange.End) {
			return Rule{}, false
		}
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
		r.From = IPv4.everywhere()
		if family == netlink.FAMILY_V6 {
			r.From = IPv6.everywhere()
		}
	}
	return r, true
}

func rulePrefix(n *net.IPNet) netip.Prefix {
	p, _ := prefixOf(n)
	return p
}
