package probe

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestRealRuleToOtherNetwork checks a rule of n2 that routes all packets for the chosen subnet
// over another network with a smaller MTU.
func TestRealRuleToOtherNetwork(t *testing.T) {
	hub, nodes := twoNodes(t, 9000, 9000)
	hub.Bridge("other")
	for i, n := range nodes {
		n.wire("eth0", hub, fmt.Sprintf("q%d", i+1), "other", 1500)
		n.Addr("eth0", fmt.Sprintf("10.9.0.%d/24", i+1))
		for _, c := range []string{"all", "eth0", "hsn0"} {
			n.sysctl("ipv4/conf/"+c+"/rp_filter", "0")
		}
	}
	all := onAll(nodes)
	n2 := nodes[1]
	n2.Route(netlink.Route{LinkIndex: n2.Link("eth0").Attrs().Index, Table: 77, Scope: netlink.SCOPE_LINK}, "10.2.0.0/24", "")
	rule := netlink.NewRule()
	_, rule.Dst, _ = net.ParseCIDR("10.2.0.0/24")
	rule.Table = 77
	must(t, n2.NL.RuleAdd(rule))
	wants(t, Diagnose(ring(t, nodes, all)), AsymmetricRoute, Doubtful, "packets from n2 (hsn0, 10.2.0.2) to n1 (hsn0, 10.2.0.1) leave by eth0")
}

// TestRealWrongSubnetDefaultRoute checks hosts with a default route, which send packets for
// another subnet out by that route.
func TestRealWrongSubnetDefaultRoute(t *testing.T) {
	hub := newSpace(t, "hub")
	hub.Bridge("sw")
	hub.Bridge("other")
	hub.Addr("other", "10.9.0.254/24")
	hub.sysctl("ipv4/ip_forward", "0")
	var nodes []*space
	var all []Endpoint
	for i, a := range []string{"10.2.0.1/24", "10.3.0.2/24"} {
		n := newSpace(t, fmt.Sprintf("n%d", i+1))
		n.wire("hsn0", hub, fmt.Sprintf("p%d", i+1), "sw", 1500)
		n.Addr("hsn0", a)
		n.wire("eth0", hub, fmt.Sprintf("q%d", i+1), "other", 1500)
		n.Addr("eth0", fmt.Sprintf("10.9.0.%d/24", i+1))
		n.via("0.0.0.0/0", "10.9.0.254")
		nodes = append(nodes, n)
		all = append(all, n.on("hsn0", netip.MustParsePrefix(a).String()))
	}
	wants(t, Diagnose(ring(t, nodes, all)), NoCommonNetwork, Broken, "wrong subnet", "10.2.0.0/24", "10.3.0.0/24")
}

// TestRealDeadPort checks a switch port that goes down while the hosts have each other's
// link-layer addresses cached.
func TestRealDeadPort(t *testing.T) {
	hub, nodes := twoNodes(t, 1500, 1500)
	all := onAll(nodes)
	for i, n := range nodes {
		must(t, n.NL.NeighSet(&netlink.Neigh{
			LinkIndex: n.Link("hsn0").Attrs().Index, State: netlink.NUD_REACHABLE,
			IP: net.IPv4(10, 2, 0, byte(2-i)), HardwareAddr: nodes[1-i].Link("hsn0").Attrs().HardwareAddr,
		}))
	}
	must(t, hub.NL.LinkSetNoMaster(hub.Link("p2")))
	wants(t, Diagnose(ring(t, nodes, all)), Silence, Broken, "no packet arrives in either direction", "switch port")
}
