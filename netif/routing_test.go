package netif

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestRuleMatches checks which policy rules apply to packets with and without a bound source
// address.
func TestRuleMatches(t *testing.T) {
	here, there := addr("10.0.0.5"), addr("10.9.0.1")
	tests := []struct {
		name           string
		rule           Rule
		bound, unbound bool
	}{
		{"all", Rule{}, true, true},
		{"all of IPv4", Rule{From: mustPrefix("0.0.0.0/0")}, true, true},
		{"all of IPv6", Rule{From: mustPrefix("::/0")}, false, false},
		{"all of IPv6 but a mark", Rule{From: mustPrefix("::/0"), Mark: 1, Not: true}, false, false},
		{"the source", Rule{From: mustPrefix("10.0.0.0/24")}, true, false},
		{"another source", Rule{From: mustPrefix("10.0.1.0/24")}, false, false},
		{"not the source", Rule{From: mustPrefix("10.0.0.0/24"), Not: true}, false, true},
		{"the destination", Rule{To: mustPrefix("10.9.0.0/16")}, true, true},
		{"another destination", Rule{To: mustPrefix("10.8.0.0/16")}, false, false},
		{"a mark", Rule{Mark: 7}, false, false},
		{"no mark", Rule{Mark: 7, Not: true}, true, true},
		{"what passes through", Rule{IIF: "eth0"}, false, false},
		{"what comes from here", Rule{IIF: "lo"}, true, true},
		{"bound to a device", Rule{OIF: "eth0"}, false, false},
	}
	for _, tt := range tests {
		if got := tt.rule.matches(here, there); got != tt.bound {
			t.Errorf("%s, bound: %t", tt.name, got)
		}
		if got := tt.rule.matches(netip.Addr{}, there); got != tt.unbound {
			t.Errorf("%s, unbound: %t", tt.name, got)
		}
	}
}

// TestAgreePolicy checks that a rule on one host that sends the fast network's packets elsewhere
// excludes that network, and that the message names the rule.
func TestAgreePolicy(t *testing.T) {
	nodes := []Inventory{policyHost(0).done(t), policyHost(1).done(t), policyHost(2).done(t)}
	choices, err := Agree(nodes, Request{})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range choices {
		if c.Interface != "ens2" || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "unless the socket is bound to "+c.Addr.String()+", because of a routing rule") {
			t.Errorf("p%d: %s, %q", i, c.Interface, c.Warnings)
		}
	}

	fabric := func(name, mgmt, fast string) *hostSpec {
		return newHostSpec(name).link(Link{Name: "eno1", Speed: 1000}, mgmt+"/24").link(Link{Name: "ens2", Speed: 100000}, fast+"/24").
			route("0.0.0.0/0", "eno1", "10.1.0.254", "")
	}
	bad := fabric("b", "10.1.0.2", "10.2.0.2").routeTable(9, "0.0.0.0/0", "eno1", "10.1.0.254").rule(50, "10.2.0.2", 9)
	choices, err = Agree([]Inventory{fabric("a", "10.1.0.1", "10.2.0.1").done(t), bad.done(t)}, Request{})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range choices {
		if c.Interface != "eno1" {
			t.Errorf("host %d uses %s (%s), want eno1", i, c.Interface, c.Why)
		}
	}
	for _, r := range choices[0].Rejected {
		if r.Interface == "ens2" && !strings.HasSuffix(r.Reason, "(rule 50: from 10.2.0.2/32, table 9)") {
			t.Errorf("ens2 was rejected for %q", r.Reason)
		}
	}

	// A rule for a single destination, which does not affect the other pairs.
	third := fabric("b", "10.1.0.2", "10.2.0.2").routeTable(9, "0.0.0.0/0", "eno1", "10.1.0.254").done(t)
	third.Rules = []Rule{{Priority: 60, To: mustPrefix("10.2.0.3/32"), Table: 9}}
	choices, err = Agree([]Inventory{fabric("a", "10.1.0.1", "10.2.0.1").done(t), third, fabric("c", "10.1.0.3", "10.2.0.3").done(t)}, Request{})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range choices {
		if c.Interface != "eno1" {
			t.Errorf("host %d uses %s (%s), want eno1", i, c.Interface, c.Why)
		}
	}

	// A rule that routes packets from the only usable link's address by an unusable link.
	astray := newHostSpec("n").link(Link{Name: "ens2"}, "10.2.0.2/24").link(Link{Name: "eno1", Oper: "down", Flags: Up}).
		routeTable(9, "0.0.0.0/0", "eno1", "").rule(50, "10.2.0.2", 9).done(t)
	const want = "packets from 10.2.0.2 to 10.2.0.1 leave by eno1 (rule 50: from 10.2.0.2/32, table 9); this host has 10.2.0.2/24 (ens2)"
	if c, err := Choose(astray, addrs([]string{"10.2.0.1"}), Request{}); err == nil || !strings.HasSuffix(err.Error(), want) || !strings.Contains(hints.Of(err), "ip rule") {
		t.Errorf("chose %s, %v, want %q", c.Interface, err, want)
	}

	// A rule that drops packets from an address.
	drop := fabric("b", "10.1.0.2", "10.2.0.2").routeTable(9, "0.0.0.0/0", "", "").rule(50, "10.2.0.2", 9).done(t)
	if c, err := Choose(drop, addrs([]string{"10.2.0.1"}), Request{}); err == nil || !strings.Contains(err.Error(), "drops packets") {
		t.Errorf("chose %s, %v", c.Interface, err)
	}

	// A rule that drops packets without a table, for the address and for all.
	for _, tt := range []struct {
		rule Rule
		want string
	}{
		{Rule{From: mustPrefix("10.2.0.2/32")}, "rule 50 (from 10.2.0.2/32 prohibit) drops packets to 10.2.0.1"},
		{Rule{To: mustPrefix("10.2.0.0/24")}, "rule 50 (to 10.2.0.0/24 prohibit) drops packets to 10.2.0.1"},
	} {
		forbids := fabric("b", "10.1.0.2", "10.2.0.2").done(t)
		tt.rule.Priority, tt.rule.Action = 50, Prohibit
		forbids.Rules = []Rule{tt.rule}
		if c, err := Choose(forbids, addrs([]string{"10.2.0.1"}), Request{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("chose %s, %v, want %q", c.Interface, err, tt.want)
		}
		choices, err := Agree([]Inventory{fabric("a", "10.1.0.1", "10.2.0.1").done(t), forbids}, Request{})
		if err != nil || choices[1].Interface != "eno1" {
			t.Errorf("%v, %v, want eno1", choices, err)
		}
	}

	// An address on lo whose packets a rule routes out.
	lo := newHostSpec("l").link(Link{Name: "lan0", Speed: 100000, MTU: 9000}, "10.5.0.1/31").routeTable(9, "0.0.0.0/0", "lan0", "10.5.0.0").rule(50, "192.0.2.7", 9)
	lo.inv.Links[0].Addrs = append(lo.inv.Links[0].Addrs, mustPrefix("192.0.2.7/32"))
	c, err := Choose(lo.done(t), addrs([]string{"192.0.2.8"}), Request{})
	if err != nil || c.Interface != "lo" || c.Addr != addr("192.0.2.7") || c.MTU != 9000 || len(c.Warnings) != 2 ||
		c.Warnings[0] != "no route to 192.0.2.8 unless the socket is bound to 192.0.2.7: a routing rule matches this source address" {
		t.Errorf("chose %+v, %v", c, err)
	}
}

// TestEgressPathsWithoutDroppingRoutes checks that a route that drops packets does not hide the
// equivalent routes after it.
func TestEgressPathsWithoutDroppingRoutes(t *testing.T) {
	inventory := newHostSpec("n1").
		link(Link{Name: "eth0"}, "10.0.0.1/24").link(Link{Name: "eth1"}, "10.1.0.1/24").
		route("10.9.0.0/16", "eth0", "10.0.0.9", "").route("10.9.0.0/16", "", "", "").route("10.9.0.0/16", "eth1", "10.1.0.9", "").
		done(t)
	var devs []string
	for _, p := range newHost(&inventory, "n1").egressPaths(addr("10.9.0.1")) {
		devs = append(devs, p.dev)
	}
	if !slices.Equal(devs, []string{"eth0", "eth1"}) {
		t.Errorf("got %q, want eth0 and eth1", devs)
	}
}

// TestNewRules checks the order of the rules, and that the rule of the main table is added only if no
// rule names this table.
func TestNewRules(t *testing.T) {
	main := Rule{Priority: 32766}
	tests := []struct {
		name  string
		rules []Rule
		want  []Rule
	}{
		{"none", nil, []Rule{main}},
		{"the kernel's", []Rule{{Table: tableLocal}, {Priority: 32766, Table: tableMain}, {Priority: 32767, Table: 253}}, []Rule{main, {Priority: 32767, Table: 253}}},
		{"by priority", []Rule{{Priority: 70, Table: 7}, {Priority: 60, Table: 6}}, []Rule{{Priority: 60, Table: 6}, {Priority: 70, Table: 7}, main}},
		{"main table for some sources", []Rule{{Priority: 50, From: mustPrefix("10.0.0.0/8"), Table: tableMain}}, []Rule{{Priority: 50, From: mustPrefix("10.0.0.0/8")}}},
		{"rules without a table", []Rule{{Priority: 50, Goto: 60}, {Priority: 60, Action: Prohibit}}, []Rule{{Priority: 50, Goto: 60}, {Priority: 60, Action: Prohibit}, main}},
	}
	for _, tt := range tests {
		if got := newRules(&Inventory{Rules: tt.rules}); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// TestLookupRules checks which rules decide on a route, and that the others have no effect.
func TestLookupRules(t *testing.T) {
	suppress := func(bits int) *int { return &bits }
	tests := []struct {
		name  string
		rules []Rule
		want  string // link; empty if packets are dropped
	}{
		{"none", nil, "main0"},
		{"table", []Rule{{Priority: 50, Table: 9}}, "nine0"},
		{"table without routes", []Rule{{Priority: 50, Table: 8}}, "main0"},
		{"table without a route to the peer", []Rule{{Priority: 50, Table: 7}, {Priority: 60, Table: 9}}, "nine0"},
		{"another source", []Rule{{Priority: 50, From: mustPrefix("10.8.0.0/16"), Table: 7}, {Priority: 60, Table: 9}}, "nine0"},
		{"goto", []Rule{{Priority: 50, Goto: 60}, {Priority: 55, Action: Prohibit}, {Priority: 60, Table: 9}}, "nine0"},
		{"drop", []Rule{{Priority: 50, Action: Prohibit}, {Priority: 60, Table: 9}}, ""},
		{"suppressed", []Rule{{Priority: 50, Table: 9, Suppress: suppress(16)}}, "main0"},
		{"not suppressed", []Rule{{Priority: 50, Table: 9, Suppress: suppress(15)}}, "nine0"},
	}
	for _, tt := range tests {
		b := newHostSpec("n1").link(Link{Name: "main0"}, "10.0.0.1/24").link(Link{Name: "nine0"}, "10.9.0.1/24").
			route("10.1.0.0/16", "main0", "", "").routeTable(9, "10.1.0.0/16", "nine0", "").routeTable(7, "10.2.0.0/16", "nine0", "")
		b.inv.Rules = tt.rules
		inventory := b.done(t)
		if routes, _ := newHost(&inventory, "n1").lookup(addr("10.0.0.1"), addr("10.1.0.9")); len(routes) != 1 || routes[0].Dev != tt.want {
			t.Errorf("%s: got %+v, want %q", tt.name, routes, tt.want)
		}
	}
}

// TestSourceOf checks the source address that the kernel selects: that of the route, or else the
// address in the subnet of the peer or of the gateway, or else the first.
func TestSourceOf(t *testing.T) {
	inventory := newHostSpec("n1").link(Link{Name: "eth0"}, "fe80::1/64", "10.1.0.1/24", "10.2.0.1/24", "10.3.0.1/24", "fd00::1/64", "fd01::1/64").done(t)
	h := newHost(&inventory, "n1")
	tests := []struct {
		name, peer, via, src string
		dev, want            string // no address if want is empty
	}{
		{"of the route", "10.1.0.9", "", "10.3.0.1", "eth0", "10.3.0.1"},
		{"subnet of the peer", "10.2.0.9", "", "", "eth0", "10.2.0.1"},
		{"subnet of the gateway", "192.0.2.1", "10.2.0.254", "", "eth0", "10.2.0.1"},
		{"neither", "192.0.2.1", "", "", "eth0", "10.1.0.1"},
		{"subnet of an IPv6 peer", "fd01::9", "", "", "eth0", "fd01::1"},
		{"IPv6 peer elsewhere", "2001:db8::1", "fe80::2", "", "eth0", "fd00::1"},
		{"unknown link", "10.1.0.9", "", "", "eth9", ""},
	}
	for _, tt := range tests {
		r := Route{Dev: tt.dev}
		if tt.via != "" {
			r.Via = addr(tt.via)
		}
		if tt.src != "" {
			r.Src = addr(tt.src)
		}
		got := h.sourceOf(r, addr(tt.peer))
		if got.IsValid() != (tt.want != "") || got.IsValid() && got != addr(tt.want) {
			t.Errorf("%s: got %s, want %q", tt.name, got, tt.want)
		}
	}
}

// TestSplits checks whether the addresses of a network may use different paths.
func TestSplits(t *testing.T) {
	net := mustPrefix("10.1.0.0/24")
	tests := []struct {
		name string
		host *hostSpec
		rule Rule // added if its priority is not 0
		want bool
	}{
		{"route to the network", newHostSpec("n1").route("10.1.0.0/24", "lo", "", ""), Rule{}, false},
		{"route to a part", newHostSpec("n1").route("10.1.0.128/25", "lo", "", ""), Rule{}, true},
		{"route to a part of another network", newHostSpec("n1").route("10.2.0.128/25", "lo", "", ""), Rule{}, false},
		{"rule for the network", newHostSpec("n1"), Rule{Priority: 50, To: net, Table: 9}, false},
		{"rule for a part", newHostSpec("n1"), Rule{Priority: 50, To: mustPrefix("10.1.0.7/32"), Table: 9}, true},
		{"rule for a part of another network", newHostSpec("n1"), Rule{Priority: 50, To: mustPrefix("10.2.0.7/32"), Table: 9}, false},
		{"table of a rule", newHostSpec("n1").routeTable(9, "10.1.0.7/32", "lo", ""), Rule{Priority: 50, Table: 9}, true},
		{"table without a rule", newHostSpec("n1").routeTable(9, "10.1.0.7/32", "lo", ""), Rule{}, false},
		{"rule that drops packets", newHostSpec("n1"), Rule{Priority: 50, Action: Prohibit}, false},
	}
	for _, tt := range tests {
		if tt.rule.Priority != 0 {
			withRule(tt.host, tt.rule)
		}
		inventory := tt.host.done(t)
		if got := newHost(&inventory, "n1").splits(net); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// TestLowerDevices checks that each device below a link is returned once, even if an inventory has a
// cycle.
func TestLowerDevices(t *testing.T) {
	inventory := newHostSpec("n1").
		link(Link{Name: "eth0", Master: "bond0"}).link(Link{Name: "eth1", Master: "bond0"}).link(Link{Name: "bond0", Kind: "bond", Master: "br0"}).
		link(Link{Name: "br0", Kind: "bridge"}).link(Link{Name: "br0.7", Kind: "vlan", Parent: "br0"}).
		link(Link{Name: "loop0", Kind: "vlan", Parent: "loop1", Master: "loop1"}).link(Link{Name: "loop1", Kind: "vlan", Parent: "loop0", Master: "loop0"}).done(t)
	h := newHost(&inventory, "n1")
	for link, want := range map[string][]string{
		"eth0": {"eth0"}, "bond0": {"bond0", "eth0", "eth1"}, "br0.7": {"br0.7", "br0", "bond0", "eth0", "eth1"}, "loop0": {"loop0", "loop1"},
	} {
		var got []string
		for _, l := range h.lowerDevices(h.byName[link]) {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", link, got, want)
		}
	}
}

// TestEgressPathsWithNegatedRule checks that a rule that excludes a source applies only until the
// kernel has selected this source.
func TestEgressPathsWithNegatedRule(t *testing.T) {
	inventory := withRule(newHostSpec("n1").link(Link{Name: "eth0"}, "10.1.0.1/24").link(Link{Name: "hsn0"}, "10.2.0.1/24").
		routeTable(9, "10.2.0.0/24", "eth0", "10.1.0.254"), Rule{Priority: 50, From: mustPrefix("10.1.0.1/32"), Not: true, Table: 9}).done(t)
	if got, want := newHost(&inventory, "n1").egressPaths(addr("10.2.0.9")), (egressPath{dev: "hsn0", link: "eth0"}); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
