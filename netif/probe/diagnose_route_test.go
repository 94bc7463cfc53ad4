package probe

import (
	"net/netip"
	"strings"
	"testing"
)

// TestDiagnoseOtherWay checks that the cause is that packets leave the chosen network, not what
// happens to them there.
func TestDiagnoseOtherWay(t *testing.T) {
	short := func(r *Result) { r.Path.Up.Passed, r.Path.Down.Passed = 1500, 1500 }
	strayed := func(r *Result) { short(r); r.Kernel.Leaves = "eth0" }
	stuck := func(change func(*Result)) func(*Result) {
		return func(r *Result) {
			change(r)
			r.Bound = Trial{Stage: StageSend, Outcome: TimedOut, Source: r.From.Addr}
		}
	}
	heardBy := func(at int, reports []Report) []Report { reports[at].Heard[0].Interface = "eth0"; return reports }
	tests := []struct {
		name    string
		reports []Report
		cause   Cause
		level   Level
		words   string
	}{
		{"n2 leaves by another interface", pairOfReports(short, strayed), AsymmetricRoute, Doubtful,
			"packets from n2 (hsn0, 10.2.0.2) to n1 (hsn0, 10.2.0.1) leave by eth0"},
		{"n1 does", pairOfReports(strayed, short), AsymmetricRoute, Doubtful,
			"packets from n1 (hsn0, 10.2.0.1) to n2 (hsn0, 10.2.0.2) leave by eth0"},
		{"large messages get stuck there", pairOfReports(stuck(short), stuck(strayed)), AsymmetricRoute, Broken,
			"packets from n2 (hsn0, 10.2.0.2) to n1 (hsn0, 10.2.0.1) leave by eth0, and large messages time out"},
		{"they arrive on another interface", heardBy(0, pairOfReports(short, short)), AsymmetricRoute, Doubtful,
			"packets from n2 (hsn0, 10.2.0.2) to n1 (hsn0, 10.2.0.1) arrive on eth0 of n1"},
		{"the chosen way", pairOfReports(short, short), MTUMismatch, Doubtful, "so the cause is a switch, bridge, or tunnel"},
		{"only unbound sockets go astray", pairOfReports(func(r *Result) {
			short(r)
			r.Bare.Source, r.Kernel.BareLeaves = netip.MustParseAddr("10.1.0.1"), "eth0"
		}, short), MTUMismatch, Doubtful, "so the cause is a switch, bridge, or tunnel"},
		{"what is worse of the other host goes first", pairOfReports(short, func(r *Result) {
			r.Bare = Trial{Stage: StageConnect, Outcome: TimedOut}
			r.Kernel.BareSource, r.Kernel.BareLeaves = netip.MustParseAddr("10.1.0.2"), "eth0"
		}), AsymmetricRoute, Unbound, "n2 (hsn0, 10.2.0.2) reaches n1 (hsn0, 10.2.0.1) only from sockets that are bound"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wants(t, Diagnose(tt.reports), tt.cause, tt.level, tt.words) })
	}
}

// moved gives host n an address in 10.3.0.0/24 instead of 10.2.0.0/24.
func moved(reports []Report, n byte) []Report {
	move := func(e *Endpoint) {
		if e.ID == (ID{n}) {
			e.Addr = netip.AddrFrom4([4]byte{10, 3, 0, n})
			e.Prefix = netip.PrefixFrom(e.Addr, 24)
		}
	}
	for i := range reports {
		move(&reports[i].Endpoint)
		for k := range reports[i].Results {
			move(&reports[i].Results[k].From)
			move(&reports[i].Results[k].To)
		}
	}
	return reports
}

// TestDiagnoseWrongSubnet checks that hosts in different subnets without a route are diagnosed as
// such, not as a firewall.
func TestDiagnoseWrongSubnet(t *testing.T) {
	const wrong = "wrong subnet: n1 (hsn0, 10.2.0.1) is in 10.2.0.0/24 and n2 (hsn0, 10.3.0.2) is in 10.3.0.0/24"
	away := func(r *Result) { silence(r); r.Kernel.Leaves, r.Kernel.Via = "eth0", netip.MustParseAddr("10.1.0.254") }
	nowhere := func(r *Result) {
		silence(r)
		r.Bound.Outcome, r.Kernel = NoRoute, Kernel{Refuses: "network is unreachable"}
	}
	tests := []struct {
		name    string
		reports []Report
		cause   Cause
		level   Level
		words   string
	}{
		{"both leave by the default route", moved(deaf(pairOfReports(away, away), 0, 1), 2), NoCommonNetwork, Broken, wrong},
		{"one has no route", moved(deaf(pairOfReports(away, nowhere), 0, 1), 2), NoCommonNetwork, Broken,
			"n2 (hsn0, 10.3.0.2) has no route to n1 (hsn0, 10.2.0.1); their subnets are 10.3.0.0/24 and 10.2.0.0/24"},
		{"a router refuses", moved(deaf(pairOfReports(func(r *Result) {
			away(r)
			r.ICMP = []ICMP{{From: netip.MustParseAddr("10.1.0.254"), Type: 3, Code: 13}}
		}, away), 0, 1), 2), NoCommonNetwork, Broken, wrong},
		{"another network joins them", moved(pairOfReports(
			func(r *Result) { r.Kernel.Leaves = "eth0" }, func(r *Result) { r.Kernel.Leaves = "eth0" }), 2), NoCommonNetwork, Doubtful, wrong},
		{"only one route is missing", moved(deaf(pairOfReports(away, silence), 0, 1), 2), AsymmetricRoute, Broken, "leave by eth0"},
		{"one subnet", deaf(pairOfReports(away, away), 0, 1), AsymmetricRoute, Broken, "leave by eth0"},
		{"routed by the chosen interfaces", moved(deaf(pairOfReports(silence, silence), 0, 1), 2), Silence, Broken, "no packet arrives"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wants(t, Diagnose(tt.reports), tt.cause, tt.level, tt.words) })
	}

	// The hint names the host that differs, whichever host of the pair comes first.
	reports := moved(ringOfReports(5, 4), 4)
	for i := range reports {
		for k := range reports[i].Results {
			if r := &reports[i].Results[k]; !r.OK() {
				r.Kernel.Leaves = "eth0"
			}
		}
	}
	found := Diagnose(reports)
	if len(found) != 2 {
		t.Fatalf("found %v, want n4 with each of its neighbours", found)
	}
	for _, f := range found {
		if f.Cause != NoCommonNetwork || !strings.Contains(f.Hint(), "hsn0 of n4") {
			t.Errorf("%v; hint: %s", f, f.Hint())
		}
	}
}

// TestDiagnoseSilence checks that silence is the cause only if neither side has other evidence.
func TestDiagnoseSilence(t *testing.T) {
	refused := func(r *Result) { silence(r); r.Bound.Outcome = Refused }
	told := func(r *Result) {
		silence(r)
		r.ICMP = []ICMP{{From: r.To.Addr, Type: 3, Code: 13}}
	}
	lost := func(r *Result) { silence(r); r.Kernel.Neighbor, r.Kernel.MAC = "failed", "" }
	none := func(r *Result) { silence(r); r.Path = Path{} }
	tests := []struct {
		name    string
		reports []Report
		cause   Cause
		words   string
	}{
		{"nothing at all", deaf(pairOfReports(silence, silence), 0, 1), Silence, "no packet arrives in either direction"},
		{"no datagrams were tried", deaf(pairOfReports(none, none), 0, 1), Silence, "n1 (hsn0, 10.2.0.1) gets no answer at all from n2"},
		{"the other host did not report", deaf(pairOfReports(silence, nil), 0)[:1], Silence, "n1 (hsn0, 10.2.0.1) gets no answer at all from n2"},
		{"the other is refused", deaf(pairOfReports(silence, refused), 0, 1), Firewall, "n1 (hsn0, 10.2.0.1) listens on port 4000, but rejects connections from n2 (hsn0, 10.2.0.2) (RST)"},
		{"the other is told", deaf(pairOfReports(silence, told), 0, 1), Firewall, `n1 reports "administratively prohibited"`},
		{"the other finds nobody", deaf(pairOfReports(silence, lost), 0, 1), NoCommonNetwork, "n2 (hsn0, 10.2.0.2) gets no reply from n1"},
		{"only questions pass", pairOfReports(silence, silence), Firewall, "datagrams arrive in both directions"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := Diagnose(tt.reports)
			wants(t, found, tt.cause, Broken, tt.words)
			hint := found[0].Hint()
			port, wall := strings.Index(hint, "switch ports"), strings.Index(hint, "firewall")
			if tt.cause == Silence && (port < 0 || wall < port) {
				t.Errorf("hint %q, want the switch ports and then a firewall", hint)
			}
		})
	}
}
