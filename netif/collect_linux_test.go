package netif

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestCollectHere checks that Collect finds the same interfaces on this machine as the standard
// library, and that ReadCases accepts its result.
func TestCollectHere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inv, err := Collect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if inv.Host == "" || len(inv.Links) != len(ifs) {
		t.Fatalf("host %q, %d links, want %d", inv.Host, len(inv.Links), len(ifs))
	}
	for i, want := range ifs {
		got := inv.Links[i]
		up, running := want.Flags&net.FlagUp != 0, want.Flags&net.FlagRunning != 0
		if got.Name != want.Name || got.Index != want.Index || got.MTU != want.MTU || (got.Flags&Up != 0) != up || (got.Flags&Running != 0) != running {
			t.Errorf("link %+v, want %+v", got, want)
		}
		if (got.ARPHRD == arphrdLoopback) != (want.Flags&net.FlagLoopback != 0) {
			t.Errorf("link %s: arphrd %q", got.Name, got.ARPHRD)
		}
	}
	text, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	again := parse(t, string(text))
	if !reflect.DeepEqual(inv, again) {
		t.Errorf("%+v became %+v", inv, again)
	}
}

// TestCollectStops checks that Collect returns the error of its context.
func TestCollectStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Collect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want one of a cancelled context", err)
	}
}

// TestIsSettled checks that addresses whose duplicate detection has not finished or has failed are
// not used.
func TestIsSettled(t *testing.T) {
	v4 := &net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(24, 32)}
	v6 := &net.IPNet{IP: net.ParseIP("fd00::1"), Mask: net.CIDRMask(64, 128)}
	tests := []struct {
		net   *net.IPNet
		flags int
		want  bool
	}{
		{v4, unix.IFA_F_PERMANENT, true},
		{v4, unix.IFA_F_SECONDARY, true},
		{v6, unix.IFA_F_PERMANENT, true},
		{v6, unix.IFA_F_TENTATIVE, false},
		{v6, unix.IFA_F_DADFAILED | unix.IFA_F_PERMANENT, false},
		{v6, unix.IFA_F_DEPRECATED, false},
		{v6, unix.IFA_F_TEMPORARY, false},
	}
	for _, tt := range tests {
		if got := isSettled(netlink.Addr{IPNet: tt.net, Flags: tt.flags}); got != tt.want {
			t.Errorf("%s with flags %#x: %t, want %t", tt.net, tt.flags, got, tt.want)
		}
	}
}

// TestRoutesOf checks the conversion of the kernel's routes, including routes with several next
// hops.
func TestRoutesOf(t *testing.T) {
	links := []Link{{Name: "lan0"}, {Name: "lan1"}}
	byIndex := map[int]int{7: 0, 8: 1}
	_, dst, _ := net.ParseCIDR("10.0.0.0/8")
	_, linkLocal, _ := net.ParseCIDR("fe80::/64")
	src := net.IPv4(192, 0, 2, 7)
	via := &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: net.ParseIP("fe80::1")}
	tests := []struct {
		name string
		in   netlink.Route
		want []Route
	}{
		{"by a gateway of the other family, to the second hop of which a link is dead",
			netlink.Route{Dst: dst, Type: unix.RTN_UNICAST, Src: src, Priority: 5, MultiPath: []*netlink.NexthopInfo{
				{LinkIndex: 7, Via: via}, {LinkIndex: 8, Flags: unix.RTNH_F_DEAD}, {LinkIndex: 8, Gw: net.IPv4(10, 1, 1, 1)}}},
			[]Route{{Dst: mustPrefix("10.0.0.0/8"), Dev: "lan0", Via: addr("fe80::1"), Src: addr("192.0.2.7"), Metric: 5},
				{Dst: mustPrefix("10.0.0.0/8"), Dev: "lan1", Via: addr("10.1.1.1"), Src: addr("192.0.2.7"), Metric: 5}}},
		{"unreachable by lo, as the kernel has it for IPv6", netlink.Route{Dst: dst, Type: unix.RTN_UNREACHABLE, LinkIndex: 1}, []Route{{Dst: mustPrefix("10.0.0.0/8")}}},
		{"by a link of another namespace", netlink.Route{Dst: dst, Type: unix.RTN_UNICAST, LinkIndex: 99}, nil},
		{"throw, of a table of its own", netlink.Route{Dst: dst, Type: unix.RTN_THROW, Table: 52}, []Route{{Dst: mustPrefix("10.0.0.0/8"), Table: 52, Throw: true}}},
		{"of the main table", netlink.Route{Dst: dst, Type: unix.RTN_UNICAST, LinkIndex: 7, Table: unix.RT_TABLE_MAIN}, []Route{{Dst: mustPrefix("10.0.0.0/8"), Dev: "lan0"}}},
		{"link-local", netlink.Route{Dst: linkLocal, Type: unix.RTN_UNICAST, LinkIndex: 7}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := routesOf(tt.in, links, byIndex); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestRuleOf checks the conversion of the kernel's policy rules.
func TestRuleOf(t *testing.T) {
	_, src, _ := net.ParseCIDR("10.0.0.5/32")
	suppressed := 0
	rule := func(change func(*netlink.Rule)) netlink.Rule {
		r := *netlink.NewRule()
		r.Priority, r.Table, r.Type = 100, 7, nl.FR_ACT_TO_TBL
		change(&r)
		return r
	}
	everywhere := IPv4.defaultPrefix()
	tests := []struct {
		name string
		in   netlink.Rule
		want *Rule // nil: omitted
	}{
		{"for a source", rule(func(r *netlink.Rule) { r.Src = src }), &Rule{Priority: 100, From: mustPrefix("10.0.0.5/32"), Table: 7}},
		{"for all", rule(func(r *netlink.Rule) { r.IPProto = unix.IPPROTO_TCP }), &Rule{Priority: 100, From: everywhere, Table: 7}},
		{"but for a mark, as of wg-quick", rule(func(r *netlink.Rule) { r.Invert, r.Mark = true, 0xca6c }), &Rule{Priority: 100, From: everywhere, Mark: 0xca6c, Not: true, Table: 7}},
		{"but for the default route", rule(func(r *netlink.Rule) { r.SuppressPrefixlen = 0 }), &Rule{Priority: 100, From: everywhere, Suppress: &suppressed, Table: 7}},
		{"of a VRF", rule(func(r *netlink.Rule) { r.Table = 0 }), nil},
		{"for a port", rule(func(r *netlink.Rule) { r.Dport = netlink.NewRulePortRange(22, 22) }), nil},
		{"for UDP", rule(func(r *netlink.Rule) { r.IPProto = unix.IPPROTO_UDP }), nil},
		{"for a type of service", rule(func(r *netlink.Rule) { r.Tos = 8 }), nil},
		{"for a tunnel", rule(func(r *netlink.Rule) { r.TunID = 7 }), nil},
		{"from a port", rule(func(r *netlink.Rule) { r.Sport = netlink.NewRulePortRange(22, 22) }), nil},
		{"but for the first group of links", rule(func(r *netlink.Rule) { r.SuppressIfgroup = 0 }), nil},
		{"for this user", rule(func(r *netlink.Rule) { r.UIDRange = netlink.NewRuleUIDRange(uint32(os.Getuid()), uint32(os.Getuid())) }), &Rule{Priority: 100, From: everywhere, Table: 7}},
		{"for another user", rule(func(r *netlink.Rule) { r.UIDRange = netlink.NewRuleUIDRange(4e9, 4e9) }), nil},
		{"not for UDP from a source", rule(func(r *netlink.Rule) { r.Invert, r.IPProto, r.Src, r.Mark = true, unix.IPPROTO_UDP, src, 1 }), &Rule{Priority: 100, From: everywhere, Table: 7}},
		{"not for another user", rule(func(r *netlink.Rule) { r.Invert, r.UIDRange = true, netlink.NewRuleUIDRange(4e9, 4e9) }), &Rule{Priority: 100, From: everywhere, Table: 7}},
		{"not for TCP from a source", rule(func(r *netlink.Rule) { r.Invert, r.IPProto, r.Src = true, unix.IPPROTO_TCP, src }), &Rule{Priority: 100, From: mustPrefix("10.0.0.5/32"), Not: true, Table: 7}},
		{"jump", rule(func(r *netlink.Rule) { r.Table, r.Type, r.Goto = 0, nl.FR_ACT_GOTO, 200 }), &Rule{Priority: 100, From: everywhere, Goto: 200}},
		{"no operation", rule(func(r *netlink.Rule) { r.Type = nl.FR_ACT_NOP }), nil},
		{"drop", rule(func(r *netlink.Rule) { r.Table, r.Src, r.Type = 0, src, nl.FR_ACT_BLACKHOLE }), &Rule{Priority: 100, From: mustPrefix("10.0.0.5/32"), Action: Blackhole}},
		{"unreachable", rule(func(r *netlink.Rule) { r.Table, r.Type = 0, nl.FR_ACT_UNREACHABLE }), &Rule{Priority: 100, From: everywhere, Action: Unreachable}},
		{"prohibit, with a table that says nothing", rule(func(r *netlink.Rule) { r.Type = nl.FR_ACT_PROHIBIT }), &Rule{Priority: 100, From: everywhere, Action: Prohibit}},
	}
	for _, tt := range tests {
		got, ok := ruleOf(tt.in, netlink.FAMILY_V4)
		if ok != (tt.want != nil) || ok && !reflect.DeepEqual(got, *tt.want) {
			t.Errorf("%s: %+v, %t, want %+v", tt.name, got, ok, tt.want)
		}
	}
}
