package probe

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// twoNodes returns two nodes on one switch, n1 with 10.2.0.1 and n2 with 10.2.0.2.
func twoNodes(t *testing.T, mtu1, mtu2 int) (hub *space, nodes []*space) {
	t.Helper()
	hub = newSpace(t, "hub")
	hub.Bridge("sw")
	for i, mtu := range []int{mtu1, mtu2} {
		n := newSpace(t, fmt.Sprintf("n%d", i+1))
		n.wire("hsn0", hub, fmt.Sprintf("p%d", i+1), "sw", mtu)
		n.Addr("hsn0", fmt.Sprintf("10.2.0.%d/24", i+1))
		nodes = append(nodes, n)
	}
	return hub, nodes
}

func onAll(nodes []*space) []Endpoint {
	var all []Endpoint
	for i, n := range nodes {
		all = append(all, n.on("hsn0", fmt.Sprintf("10.2.0.%d/24", i+1)))
	}
	return all
}

// TestRealGood checks that a working network has no findings, with small and large MTUs.
func TestRealGood(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		_, nodes := twoNodes(t, mtu, mtu)
		reports := ring(t, nodes, onAll(nodes))
		if f := Diagnose(reports); len(f) != 0 {
			t.Errorf("mtu %d: %v", mtu, f)
		}
		for i, rep := range reports {
			r := rep.Results[0]
			full := Size{mtu, mtu}
			if !r.OK() || !r.Bare.works() || !r.Device.works() || r.Path.Up != full || r.Path.Down != full || r.Kernel.Leaves != "hsn0" {
				t.Errorf("mtu %d: %+v", mtu, r)
			}
			if r.Took > DefaultTimeout {
				t.Errorf("mtu %d: took %s", mtu, r.Took)
			}
			later, err := nodes[i].node.tell(order{}) // after the other node has also sent
			must(t, err)
			if h := later.Report.Heard; len(h) != 1 || h[0].Interface != "hsn0" || h[0].ID != r.To.ID || h[0].Source != r.To.Addr {
				t.Errorf("mtu %d: heard %+v", mtu, h)
			}
		}
	}
}

// TestRealIPv6Only checks probes and findings in a network with IPv6 only.
func TestRealIPv6Only(t *testing.T) {
	_, nodes := twoNodes(t, 9000, 9000)
	var all []Endpoint
	for i, n := range nodes {
		n.Addr("hsn0", fmt.Sprintf("fd00::%d/64", i+1))
		all = append(all, n.on("hsn0", fmt.Sprintf("fd00::%d/64", i+1)))
	}
	reports := ring(t, nodes, all)
	if f := Diagnose(reports); len(f) != 0 || reports[0].Results[0].Path.Up.Passed != 9000 {
		t.Errorf("%v, %+v", f, reports[0].Results[0])
	}
	nodes[0].Route(netlink.Route{Type: unix.RTN_PROHIBIT}, "fd00::2/128", "")
	wants(t, Diagnose(ring(t, nodes, all)), AsymmetricRoute, Broken, "fd00::1", "prohibits packets")
}

// TestRealMTUOnTheWay checks a switch between two hosts whose MTU is smaller than theirs, and
// which drops larger packets silently.
func TestRealMTUOnTheWay(t *testing.T) {
	for _, family := range []string{"10.2.0.%d/24", "fd00::%d/64"} {
		one, other := newSpace(t, "sw1"), newSpace(t, "sw2")
		one.Bridge("sw")
		other.Bridge("sw")
		one.wire("trunk", other, "trunk", "sw", 1500)
		must(t, one.NL.LinkSetMaster(one.Link("trunk"), one.Link("sw")))
		var nodes []*space
		var all []Endpoint
		for i, sw := range []*space{one, other} {
			n := newSpace(t, fmt.Sprintf("n%d", i+1))
			n.wire("hsn0", sw, "port", "sw", 9000)
			n.Addr("hsn0", fmt.Sprintf(family, i+1))
			nodes = append(nodes, n)
			all = append(all, n.on("hsn0", fmt.Sprintf(family, i+1)))
		}
		wants(t, Diagnose(ring(t, nodes, all)), MTUMismatch, Broken,
			"packets of 9000 bytes are lost", "the largest that pass have 1500", "both hosts have mtu 9000")
	}
}

// TestRealMTUOfHosts checks hosts with different MTUs. TCP works, because each announces its own
// MTU. Other protocols do not work.
func TestRealMTUOfHosts(t *testing.T) {
	_, nodes := twoNodes(t, 9000, 1500)
	wants(t, Diagnose(ring(t, nodes, onAll(nodes))), MTUMismatch, Doubtful,
		"packets of 9000 bytes are lost from n1 (hsn0, 10.2.0.1) to n2 (hsn0, 10.2.0.2)", "the largest that pass have 1500",
		"the mtu is 9000 on n1 and 1500 on n2")
}

// TestRealOwnRoutes checks that a route of this host that drops packets is reported.
func TestRealOwnRoutes(t *testing.T) {
	tests := []struct {
		kind  int
		words string
	}{
		{unix.RTN_BLACKHOLE, "drops packets to n2 (hsn0, 10.2.0.2)"},
		{unix.RTN_UNREACHABLE, "makes n2 (hsn0, 10.2.0.2) unreachable"},
		{unix.RTN_PROHIBIT, "prohibits packets to n2 (hsn0, 10.2.0.2)"},
	}
	for _, tt := range tests {
		_, nodes := twoNodes(t, 1500, 1500)
		all := onAll(nodes)
		nodes[0].Route(netlink.Route{Type: tt.kind}, "10.2.0.2/32", "")
		wants(t, Diagnose(ring(t, nodes, all)), AsymmetricRoute, Broken, tt.words, "but packets in the other direction")
	}
}

// TestRealWrongSubnet checks hosts that share a switch but have addresses in different subnets.
func TestRealWrongSubnet(t *testing.T) {
	hub := newSpace(t, "hub")
	hub.Bridge("sw")
	var nodes []*space
	var all []Endpoint
	for i, a := range []string{"10.2.0.1/24", "10.3.0.2/24"} {
		n := newSpace(t, fmt.Sprintf("n%d", i+1))
		n.wire("hsn0", hub, fmt.Sprintf("p%d", i+1), "sw", 1500)
		n.Addr("hsn0", a)
		nodes = append(nodes, n)
		all = append(all, n.on("hsn0", a))
	}
	wants(t, Diagnose(ring(t, nodes, all)), NoCommonNetwork, Broken,
		"n1 (hsn0, 10.2.0.1) has no route to n2 (hsn0, 10.3.0.2)", "10.2.0.0/24 and 10.3.0.0/24")
}

// TestRealOtherSwitch checks one subnet with two switches that are not connected.
func TestRealOtherSwitch(t *testing.T) {
	hub, nodes := twoNodes(t, 1500, 1500)
	all := onAll(nodes)
	must(t, hub.NL.LinkSetNoMaster(hub.Link("p2")))
	wants(t, Diagnose(ring(t, nodes, all)), NoCommonNetwork, Broken, "gets no reply from", "10.2.0.2", "ARP")
}

// routed returns n1 and n2 with a router between them.
func routed(t *testing.T) (router *space, nodes []*space, all []Endpoint) {
	t.Helper()
	router = newSpace(t, "router")
	for i := 1; i <= 2; i++ {
		n := newSpace(t, fmt.Sprintf("n%d", i))
		port := fmt.Sprintf("p%d", i)
		n.wire("hsn0", router, port, "", 1500)
		router.Addr(port, fmt.Sprintf("10.%d.0.254/24", i))
		n.Addr("hsn0", fmt.Sprintf("10.%d.0.%d/24", i, i))
		n.via("0.0.0.0/0", fmt.Sprintf("10.%d.0.254", i))
		nodes = append(nodes, n)
		all = append(all, n.on("hsn0", fmt.Sprintf("10.%d.0.%d/24", i, i)))
	}
	router.sysctl("ipv4/ip_forward", "1")
	// Otherwise the router sends only two ICMP errors, perhaps to a kernel socket that the
	// probe does not own yet. Five are enough.
	router.sysctl("ipv4/icmp_ratelimit", "0")
	for _, c := range []string{"all", "p1", "p2"} { // otherwise the setting of the return path would also apply
		router.sysctl("ipv4/conf/"+c+"/rp_filter", "0")
	}
	return router, nodes, all
}

// TestRealRouter checks the diagnosis of routers that drop packets in one or both directions.
func TestRealRouter(t *testing.T) {
	type drop struct {
		kind int
		dst  string
	}
	tests := []struct {
		name  string
		drops []drop
		cause Cause // empty: no finding
		words string
	}{
		{"good", nil, "", ""},
		{"one direction", []drop{{unix.RTN_BLACKHOLE, "10.1.0.1/32"}}, AsymmetricRoute,
			"packets from n1 (hsn0, 10.1.0.1) arrive at n2 (hsn0, 10.2.0.2), but no packets return"},
		{"the other direction", []drop{{unix.RTN_BLACKHOLE, "10.2.0.2/32"}}, AsymmetricRoute,
			"packets from n2 (hsn0, 10.2.0.2) arrive at n1 (hsn0, 10.1.0.1), but no packets return"},
		{"prohibited", []drop{{unix.RTN_PROHIBIT, "10.2.0.2/32"}}, Firewall,
			`n1 (hsn0, 10.1.0.1) cannot reach n2 (hsn0, 10.2.0.2): the router 10.1.0.254 reports "administratively prohibited"`},
		{"unreachable", []drop{{unix.RTN_UNREACHABLE, "10.2.0.2/32"}}, NoCommonNetwork,
			`n1 (hsn0, 10.1.0.1) cannot reach n2 (hsn0, 10.2.0.2): the router 10.1.0.254 reports "host unreachable"`},
		{"silence", []drop{{unix.RTN_BLACKHOLE, "10.1.0.1/32"}, {unix.RTN_BLACKHOLE, "10.2.0.2/32"}}, Silence,
			"no packet arrives in either direction between n1 (hsn0, 10.1.0.1) and n2 (hsn0, 10.2.0.2)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// Each node has its own router, because a router sends only one ICMP error per
			// second.
			router, nodes, all := routed(t)
			for _, d := range tt.drops {
				router.Route(netlink.Route{Type: d.kind}, d.dst, "")
			}
			reports := ring(t, nodes, all)
			for _, rep := range reports {
				for _, trial := range []Trial{rep.Results[0].Bound, rep.Results[0].Bare, rep.Results[0].Device} {
					if trial.Outcome == Unreachable && len(trial.ICMP) == 0 {
						t.Errorf("a refused connection does not know by whom: %+v", trial)
					}
				}
			}
			found := Diagnose(reports)
			if tt.cause != "" {
				wants(t, found, tt.cause, Broken, tt.words)
			} else if len(found) != 0 {
				t.Errorf("found %v", found)
			}
		})
	}
}

// TestRealCarrierLost checks that an interface without a carrier is reported.
func TestRealCarrierLost(t *testing.T) {
	router, nodes, all := routed(t)
	router.Down("p1")
	wants(t, Diagnose(ring(t, nodes, all)), InterfaceDown, Broken, "n1 (hsn0, 10.1.0.1): hsn0 lost its carrier")
}

// TestRealClosedPort checks that a closed port is reported as a firewall that rejects connections.
func TestRealClosedPort(t *testing.T) {
	_, nodes := twoNodes(t, 1500, 1500)
	all := onAll(nodes)
	all[1].TCP = 1
	reports := ring(t, nodes, all)
	wants(t, Diagnose(reports), Firewall, Broken, "n2 (hsn0, 10.2.0.2) listens on port 1, but rejects connections from n1 (hsn0, 10.2.0.1)")
}

// TestRealDuplicateAddress checks a third machine, which is not part of the job, that has n2's
// address and answers ARP first.
func TestRealDuplicateAddress(t *testing.T) {
	hub, nodes := twoNodes(t, 1500, 1500)
	all := onAll(nodes)
	third := newSpace(t, "n3")
	third.wire("eth0", hub, "p3", "sw", 1500)
	third.Addr("eth0", "10.2.0.2/24")
	must(t, nodes[0].NL.NeighSet(&netlink.Neigh{
		LinkIndex: nodes[0].Link("hsn0").Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: net.IPv4(10, 2, 0, 2), HardwareAddr: third.Link("eth0").Attrs().HardwareAddr,
	}))
	mac := third.Link("eth0").Attrs().HardwareAddr.String()
	wants(t, Diagnose(ring(t, nodes, all)), DuplicateAddress, Broken, "10.2.0.2", mac, "a different machine")

	// A program of another job listens at that address.
	stranger := orderListen{Interface: "eth0", Addr: netip.MustParsePrefix("10.2.0.2/24"), Secret: 2, Port: all[1].TCP}
	third.listen(stranger)
	reports := ring(t, nodes, all)
	if o := reports[0].Results[0].Bound.Outcome; o != Reset {
		t.Errorf("outcome %s, want %s", o, Reset)
	}
	wants(t, Diagnose(reports), DuplicateAddress, Broken, mac)

	// A host of this job listens at that address and is identified.
	third.node.in.Close()
	impostor := stranger
	impostor.Secret = 1
	third.start()
	for {
		a, err := third.node.tell(order{Listen: &orderListen{Host: "n3", Interface: "eth0", Addr: impostor.Addr, Secret: 1, Port: impostor.Port}})
		must(t, err)
		if a.Endpoint.Trouble == "" { // until the other process has ended
			break
		}
	}
	reports = ring(t, nodes, all)
	wants(t, Diagnose(reports), DuplicateAddress, Broken, "n1 (hsn0, 10.2.0.1) connects to n2 (hsn0, 10.2.0.2) and n3 answers")
}

// TestRealLinkDownMeanwhile checks that an interface that goes down after the selection is
// reported.
func TestRealLinkDownMeanwhile(t *testing.T) {
	_, nodes := twoNodes(t, 1500, 1500)
	all := onAll(nodes)
	nodes[1].Down("hsn0")
	wants(t, Diagnose(ring(t, nodes, all)), InterfaceDown, Broken, "n2 (hsn0, 10.2.0.2): hsn0 is down since the network was chosen")
}

// TestRealUnable checks that a host that cannot listen on its address is reported.
func TestRealUnable(t *testing.T) {
	_, nodes := twoNodes(t, 1500, 1500)
	all := []Endpoint{nodes[0].on("hsn0", "10.2.0.1/24"), nodes[1].on("hsn0", "10.2.0.9/24")}
	reports := ring(t, nodes[:1], all)
	reports = append(reports, Report{Endpoint: all[1]})
	wants(t, Diagnose(reports), InterfaceDown, Broken, "n2 (hsn0, 10.2.0.9): cannot listen on hsn0 (10.2.0.9)", "cannot assign requested address")
}

// TestRealTwoInterfacesOneSubnet checks two interfaces in one subnet: the kernel uses the first,
// whatever the source address.
func TestRealTwoInterfacesOneSubnet(t *testing.T) {
	hub, nodes := twoNodes(t, 1500, 1500)
	n1 := nodes[0]
	n1.wire("hsn1", hub, "p3", "sw", 1500)
	n1.Addr("hsn1", "10.2.0.11/24")
	all := []Endpoint{n1.on("hsn1", "10.2.0.11/24"), nodes[1].on("hsn0", "10.2.0.2/24")}
	wants(t, Diagnose(ring(t, nodes, all)), AsymmetricRoute, Doubtful, "packets from n1 (hsn1, 10.2.0.11) to n2 (hsn0, 10.2.0.2) leave by hsn0")
}

// TestRealPolicyRouting checks a host whose rules route only packets from the chosen address
// correctly.
func TestRealPolicyRouting(t *testing.T) {
	hub, nodes := twoNodes(t, 1500, 1500)
	n1 := nodes[0]
	hub.Bridge("other")
	n1.wire("eth0", hub, "p3", "other", 1500)
	n1.Addr("eth0", "10.9.0.1/24")
	all := onAll(nodes)
	hsn0, eth0 := n1.Link("hsn0").Attrs().Index, n1.Link("eth0").Attrs().Index
	n1.Route(netlink.Route{LinkIndex: hsn0, Table: 100, Scope: netlink.SCOPE_LINK}, "10.2.0.0/24", "")
	rule := netlink.NewRule()
	rule.Src = &net.IPNet{IP: net.IPv4(10, 2, 0, 1).To4(), Mask: net.CIDRMask(32, 32)}
	rule.Table = 100
	must(t, n1.NL.RuleAdd(rule))
	n1.Route(netlink.Route{LinkIndex: eth0, Scope: netlink.SCOPE_LINK}, "10.2.0.2/32", "")
	wants(t, Diagnose(ring(t, nodes, all)), AsymmetricRoute, Unbound,
		"n1 (hsn0, 10.2.0.1) reaches n2 (hsn0, 10.2.0.2) only from sockets that are bound to 10.2.0.1", "leave by eth0")
}
