package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// endpointNamed returns host n of 10.2.0.0/24.
func endpointNamed(n byte) Endpoint {
	addr := netip.AddrFrom4([4]byte{10, 2, 0, n})
	return Endpoint{
		Host: fmt.Sprintf("n%d", n), Interface: "hsn0", Addr: addr, Prefix: netip.PrefixFrom(addr, 24), MTU: 9000,
		MAC: fmt.Sprintf("02:00:00:00:00:%02x", n), ID: ID{n}, TCP: 4000, UDP: 4001,
	}
}

// goodResult returns the result of one host about another if everything works.
func goodResult(from, to byte) Result {
	a, b := endpointNamed(from), endpointNamed(to)
	greeted := Trial{Stage: StageGreet, Outcome: OK, Source: a.Addr}
	bound := greeted
	bound.Stage = StageDone
	full := Size{9000, 9000}
	return Result{
		From: a, To: b, Bound: bound, Bare: greeted, Device: greeted,
		Path:   Path{Tried: true, Small: true, Up: full, Down: full},
		Kernel: Kernel{Leaves: "hsn0", BareLeaves: "hsn0", BareSource: a.Addr, Neighbor: "reachable", MAC: b.MAC},
	}
}

// silence returns a result without any answer.
func silence(r *Result) {
	none := Trial{Stage: StageConnect, Outcome: TimedOut, Detail: "i/o timeout"}
	r.Bound, r.Bare, r.Device = none, none, none
	r.Path.Small, r.Path.Up.Passed, r.Path.Down.Passed = false, 0, 0
}

// pairOfReports returns the reports of n1 and n2, each with a result about the other.
func pairOfReports(change1, change2 func(*Result)) []Report {
	reports := make([]Report, 2)
	for i := range reports {
		at, other := byte(i+1), byte(2-i)
		r := goodResult(at, other)
		if change := []func(*Result){change1, change2}[i]; change != nil {
			change(&r)
		}
		reports[i] = Report{Endpoint: endpointNamed(at), Results: []Result{r}, Heard: []Sighting{
			{ID: ID{other}, Source: endpointNamed(other).Addr, Interface: "hsn0"},
		}}
	}
	return reports
}

func deaf(reports []Report, hosts ...int) []Report {
	for _, i := range hosts {
		reports[i].Heard = nil
	}
	return reports
}

// TestDiagnose checks the cause, the level, and the text of each pattern of failed probes.
func TestDiagnose(t *testing.T) {
	stuck := func(stage Stage, outcome Outcome) func(*Result) {
		return func(r *Result) { r.Bound = Trial{Stage: stage, Outcome: outcome, Source: r.From.Addr} }
	}
	tests := []struct {
		name    string
		reports []Report
		cause   Cause
		level   Level
		words   string
	}{
		{"tcp is dropped, datagrams pass", pairOfReports(func(r *Result) { path := r.Path; silence(r); r.Path = path }, nil),
			Firewall, Broken, "datagrams pass between n1 (hsn0, 10.2.0.1) and n2 (hsn0, 10.2.0.2), but TCP connections to port 4000 get no answer"},
		{"connections one way only", pairOfReports(silence, func(r *Result) { r.Path.Small = false }),
			Firewall, Broken, "n2 (hsn0, 10.2.0.2) connects to n1 (hsn0, 10.2.0.1), but connections in the other direction get no answer"},
		{"silence", deaf(pairOfReports(silence, silence), 0, 1), Silence, Broken,
			"no packet arrives in either direction between n1 (hsn0, 10.2.0.1) and n2 (hsn0, 10.2.0.2): the link, its VLAN, the switch port, or a firewall"},
		{"packets one way only", deaf(pairOfReports(silence, silence), 0), AsymmetricRoute, Broken,
			"packets from n1 (hsn0, 10.2.0.1) arrive at n2 (hsn0, 10.2.0.2), but no packets return"},
		{"a rejecting firewall of the peer (firewalld)", pairOfReports(func(r *Result) {
			silence(r)
			r.Bound.Outcome = Unreachable
			r.ICMP = []ICMP{{From: r.To.Addr, Type: 3, Code: 10}}
		}, nil), Firewall, Broken, `n1 (hsn0, 10.2.0.1) cannot reach n2 (hsn0, 10.2.0.2): n2 reports "administratively prohibited"`},
		{"the same on IPv6", pairOfReports(func(r *Result) {
			silence(r)
			r.ICMP = []ICMP{{From: netip.MustParseAddr("fd00::fe"), V6: true, Type: 1, Code: 1}}
		}, nil), Firewall, Broken, `the router fd00::fe reports "administratively prohibited"`},
		{"icmp that was not seen", pairOfReports(func(r *Result) { silence(r); r.Bound.Outcome = Unreachable }, nil),
			Firewall, Broken, "reports to n1 (hsn0, 10.2.0.1) that n2 (hsn0, 10.2.0.2) is unreachable"},
		{"no gateway", pairOfReports(func(r *Result) {
			silence(r)
			r.Kernel.Via, r.Kernel.Neighbor, r.Kernel.MAC = netip.MustParseAddr("10.2.0.254"), "failed", ""
		}, nil), NoCommonNetwork, Broken, "the gateway 10.2.0.254, which does not answer (ARP)"},
		{"only by the device", pairOfReports(func(r *Result) { device := r.Device; silence(r); r.Device = device }, nil),
			AsymmetricRoute, Broken, "reaches n2 (hsn0, 10.2.0.2) only from sockets that are bound to device hsn0"},
		{"leaves by another interface and is lost", pairOfReports(func(r *Result) { silence(r); r.Kernel.Leaves = "eno1" }, nil),
			AsymmetricRoute, Broken, "leave by eno1 and get no answer; sockets that are bound to device hsn0 also get no answer"},
		{"a stranger", pairOfReports(stuck(StageGreet, Unauthenticated), nil), DuplicateAddress, Broken, "but a program outside of this job answers"},
		{"a slow link, or a proxy that holds data back", pairOfReports(stuck(StageGreet, TimedOut), nil), Unexplained, Broken, "connects to n2 (hsn0, 10.2.0.2), but no data arrive (timed out): the link is slow or saturated"},
		{"a firewall that ends connections", pairOfReports(stuck(StageGreet, Reset), nil), Firewall, Broken, "connects to n2 (hsn0, 10.2.0.2), but each connection ends before an answer arrives"},
		{"large ones stick to the peer", pairOfReports(func(r *Result) { stuck(StageSend, TimedOut)(r); r.Path.Up.Passed = 1450 }, nil),
			MTUMismatch, Broken, "packets of 9000 bytes are lost from n1 (hsn0, 10.2.0.1) to n2 (hsn0, 10.2.0.2); the largest that pass have 1450; both hosts have mtu 9000"},
		{"large ones stick from the peer", pairOfReports(func(r *Result) { stuck(StageReceive, TimedOut)(r); r.Path.Down.Passed = 1450 }, nil),
			MTUMismatch, Broken, "packets of 9000 bytes are lost from n2 (hsn0, 10.2.0.2) to n1 (hsn0, 10.2.0.1); the largest that pass have 1450"},
		{"large ones stick and datagrams are dropped", pairOfReports(func(r *Result) {
			stuck(StageSend, TimedOut)(r)
			r.Path.Small, r.Path.Up.Passed, r.Path.Down.Passed = false, 0, 0
		}, nil), MTUMismatch, Broken, "large messages time out"},
		{"large ones stick whatever the packets", pairOfReports(stuck(StageSend, TimedOut), nil), Loss, Broken, "large messages fail (send: timed out)"},
		{"bytes change on the way", pairOfReports(stuck(StageReceive, Corrupt), nil), Loss, Broken, "large messages fail (receive: corrupt)"},
		{"another machine", pairOfReports(func(r *Result) { stuck(StageConnect, Refused)(r); r.Kernel.MAC = "02:00:00:00:00:99" }, nil),
			DuplicateAddress, Broken, "finds 10.2.0.2 at link-layer address 02:00:00:00:00:99, but n2 (hsn0, 10.2.0.2) has 02:00:00:00:00:02"},
		{"behind a gateway its address says nothing", pairOfReports(func(r *Result) {
			stuck(StageConnect, Refused)(r)
			r.Kernel.MAC, r.Kernel.Via = "02:00:00:00:00:99", netip.MustParseAddr("10.2.0.254")
		}, nil), Firewall, Broken, "n2 (hsn0, 10.2.0.2) listens on port 4000, but rejects connections from n1 (hsn0, 10.2.0.1) (RST)"},
		{"translated", pairOfReports(func(r *Result) {
			r.Bound.Source, r.Bare.Source = netip.MustParseAddr("10.2.0.254"), netip.MustParseAddr("10.2.0.254")
		}, nil), Translation, Doubtful, "from the address 10.2.0.254"},
		{"unbound sockets leave by another interface", pairOfReports(func(r *Result) {
			r.Bare.Source, r.Kernel.BareLeaves = netip.MustParseAddr("10.1.0.1"), "eno1"
		}, nil), AsymmetricRoute, Doubtful, "reach n2 (hsn0, 10.2.0.2) from address 10.1.0.1 by eno1"},
		{"unbound sockets fail", pairOfReports(func(r *Result) {
			r.Bare = Trial{Stage: StageConnect, Outcome: TimedOut}
			r.Kernel.BareSource, r.Kernel.BareLeaves = netip.MustParseAddr("10.1.0.1"), "eno1"
		}, nil), AsymmetricRoute, Unbound, "only from sockets that are bound to 10.2.0.1; other sockets use the address 10.1.0.1 and leave by eno1"},
		{"what nobody has seen", pairOfReports(func(r *Result) { r.Bound = Trial{Stage: StageConnect, Outcome: Failed, Detail: "bad weather"} }, nil),
			Unexplained, Broken, "connect: failed: bad weather"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wants(t, Diagnose(tt.reports), tt.cause, tt.level, tt.words) })
	}

	in := pairOfReports(nil, nil)
	in[1].Heard[0].Interface = "eno1"
	wants(t, Diagnose(in), AsymmetricRoute, Doubtful, "arrive on eno1 of n2")
	if f := Diagnose(pairOfReports(nil, nil)); len(f) != 0 {
		t.Errorf("all is well, but found %v", f)
	}
	if f := Diagnose(nil); f != nil {
		t.Errorf("of nothing found %v", f)
	}
}

// TestDiagnoseRouted checks that packets to an address on a loopback may arrive by other links.
func TestDiagnoseRouted(t *testing.T) {
	reports := pairOfReports(nil, nil)
	for i := range reports {
		r := &reports[i].Results[0]
		r.From.Routed, r.To.Routed = true, true
		r.Kernel.Leaves, r.Kernel.BareLeaves = "lan0", "lan0"
		r.Device = Trial{Stage: StageConnect, Outcome: NotTried}
		reports[i].Endpoint.Routed = true
		reports[i].Heard[0].Interface = "lan1"
	}
	if f := Diagnose(reports); len(f) != 0 {
		t.Errorf("found %v", f)
	}
}

// TestDiagnoseSameAddress checks that two hosts with one address cause one finding, without its
// consequences.
func TestDiagnoseSameAddress(t *testing.T) {
	reports := pairOfReports(silence, silence)
	reports[1].Endpoint.Addr = reports[0].Endpoint.Addr
	wants(t, Diagnose(reports), DuplicateAddress, Broken, "n1 (hsn0, 10.2.0.1) and n2 (hsn0, 10.2.0.1) have the same address")
}

// ringOfReports returns a ring in which some hosts are unreachable.
func ringOfReports(n int, dead ...byte) []Report {
	all := make([]Endpoint, n)
	for i := range all {
		all[i] = endpointNamed(byte(i + 1))
	}
	reports := make([]Report, n)
	for i := range reports {
		reports[i].Endpoint = all[i]
		for _, peer := range Neighbors(all, i) {
			r := goodResult(all[i].ID[0], peer.ID[0])
			for _, x := range dead {
				if r.From.ID[0] == x || r.To.ID[0] == x {
					silence(&r)
				}
			}
			reports[i].Results = append(reports[i].Results, r)
		}
	}
	return reports
}

// TestErrorNamesTheCommonHost checks that the error names the host that is part of all failures.
func TestErrorNamesTheCommonHost(t *testing.T) {
	err := Error(Diagnose(ringOfReports(8, 5)), Broken)
	var failure *Failure
	if !errors.As(err, &failure) || len(failure.Findings) != 2 {
		t.Fatalf("got %v, want two findings", err)
	}
	want := "silence: no packet arrives in either direction between n4 (hsn0, 10.2.0.4) and n5 (hsn0, 10.2.0.5): the link, its VLAN, the switch port, or a firewall" +
		"; the network also fails between n5 and n6; n5 is part of all failures"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if failure.Hint() == "" || !strings.Contains(Error(Diagnose(ringOfReports(64, 5, 20, 40)), Broken).Error(), "n19 and n20, n20 and n21 and 2 more") {
		t.Errorf("hint %q, %v", failure.Hint(), Error(Diagnose(ringOfReports(64, 5, 20, 40)), Broken))
	}
	var finding Finding
	if !errors.As(err, &finding) || finding.Cause != Silence {
		t.Errorf("no finding can be got from %v", err)
	}
}

// TestErrorLevels checks that findings below the given level are not errors.
func TestErrorLevels(t *testing.T) {
	doubtful := Diagnose(pairOfReports(func(r *Result) { r.Path.Up.Passed = 1500 }, nil))
	if err := Error(doubtful, Unbound); err != nil {
		t.Errorf("what works is an error: %v", err)
	}
	if err := Error(doubtful, Doubtful); err == nil {
		t.Error("no error, though asked for what is doubtful")
	}
	if err := Error(nil, Doubtful); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}

// TestReportsTravel checks that Diagnose returns the same findings for reports that were sent as
// JSON.
func TestReportsTravel(t *testing.T) {
	in := ringOfReports(3, 2)
	in[0].Results[0].ICMP = []ICMP{{From: netip.MustParseAddr("fd00::1"), V6: true, Type: 1, Code: 1}}
	in[0].Results[1].Bound.By = ID{9}
	text, err := json.Marshal(in)
	must(t, err)
	var out []Report
	must(t, json.Unmarshal(text, &out))
	if !reflect.DeepEqual(in, out) {
		t.Errorf("got %+v, want %+v", out, in)
	}
	var id ID
	if err := id.UnmarshalText([]byte("abc")); err == nil {
		t.Error("a short id is taken")
	}
}

// TestNeighbors checks which endpoints probe each other, for small and large jobs.
func TestNeighbors(t *testing.T) {
	all := []Endpoint{{Host: "a"}, {Host: "b"}, {Host: "c"}, {Host: "d"}}
	for _, tt := range []struct {
		n, at int
		want  string
	}{{1, 0, ""}, {2, 0, "b"}, {2, 1, "a"}, {4, 0, "bd"}, {4, 3, "ac"}, {4, 4, ""}, {4, -1, ""}} {
		got := ""
		for _, e := range Neighbors(all[:tt.n], tt.at) {
			got += e.Host
		}
		if got != tt.want {
			t.Errorf("neighbours of %d among %d: %q, want %q", tt.at, tt.n, got, tt.want)
		}
	}
}
