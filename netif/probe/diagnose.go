package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Diagnose returns the causes of the problems in the reports, the worst first. It is a pure
// function of the reports and their order. It returns nil if no report shows a problem.
//
// Causes that are certain come first: an interface that is down, an address that two hosts have,
// or a host's own route that drops packets. Diagnose returns at most one cause per pair of hosts,
// so it does not report the consequences of a cause.
func Diagnose(reports []Report) []Finding {
	d := newDiagnosis(reports)
	d.findHostProblems()
	d.findDuplicates()
	for _, pass := range []func(*Result) *Finding{d.explainCertain, d.explainBroken, d.explainUnbound, d.explainDoubtful} {
		for i := range d.results {
			r := d.results[i]
			if d.hasFinding[r.From.ID] || d.hasFinding[r.To.ID] || d.explained[pairOf(r)] {
				continue
			}
			if f := pass(r); f != nil {
				d.findings = append(d.findings, *f)
				d.explained[pairOf(r)] = true
			}
		}
	}
	sortFindings(d.findings)
	return d.findings
}

// A pair is two hosts in canonical order.
type pair [2]ID

func pairOf(r *Result) pair {
	a, b := r.From.ID, r.To.ID
	if slices.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return pair{a, b}
}

type diagnosis struct {
	reports    []Report
	results    []*Result
	resultOf   map[[2]ID]*Result    // by source and destination host
	received   map[[2]ID][]Sighting // by listening host and sending host
	hasFinding map[ID]bool          // hosts with a finding about a single host
	explained  map[pair]bool
	findings   []Finding
}

func newDiagnosis(reports []Report) *diagnosis {
	d := &diagnosis{
		reports: reports, resultOf: map[[2]ID]*Result{}, received: map[[2]ID][]Sighting{},
		hasFinding: map[ID]bool{}, explained: map[pair]bool{},
	}
	for i := range reports {
		rep := &reports[i]
		for k := range rep.Results {
			r := &rep.Results[k]
			d.results = append(d.results, r)
			d.resultOf[[2]ID{r.From.ID, r.To.ID}] = r
		}
		for _, s := range rep.Heard {
			key := [2]ID{rep.Endpoint.ID, s.ID}
			d.received[key] = append(d.received[key], s)
		}
	}
	return d
}

// reverse returns the result of the opposite direction, or nil.
func (d *diagnosis) reverse(r *Result) *Result { return d.resultOf[[2]ID{r.To.ID, r.From.ID}] }

// hasReceived reports whether the first host received a datagram from the second host.
func (d *diagnosis) hasReceived(at, of Endpoint) bool {
	return len(d.received[[2]ID{at.ID, of.ID}]) > 0
}

// findHostProblems finds problems of single hosts.
func (d *diagnosis) findHostProblems() {
	for _, rep := range d.reports {
		e := rep.Endpoint
		why := ""
		if e.Trouble != "" {
			why = strings.TrimPrefix(e.Trouble, e.Host+" ")
		}
		for _, r := range rep.Results {
			if r.Local != "" && why == "" {
				why = r.Local + " since the network was chosen"
			}
		}
		if why == "" {
			continue
		}
		d.hasFinding[e.ID] = true
		d.findings = append(d.findings, Finding{
			Cause: InterfaceDown, Level: Broken, From: e, To: e,
			text: fmt.Sprintf("%s: %s", e.label(), why),
			hint: fmt.Sprintf("check %s on %s with `ip addr` and `dmesg`, or exclude this host from the job", e.Interface, e.Host),
		})
	}
}

// findDuplicates finds addresses that several hosts of the job have.
func (d *diagnosis) findDuplicates() {
	first := map[netip.Addr]Endpoint{}
	for _, rep := range d.reports {
		e := rep.Endpoint
		if !e.Addr.IsValid() || e.Trouble != "" {
			continue
		}
		other, twice := first[e.Addr]
		if !twice {
			first[e.Addr] = e
			continue
		}
		d.hasFinding[other.ID], d.hasFinding[e.ID] = true, true
		d.findings = append(d.findings, Finding{
			Cause: DuplicateAddress, Level: Broken, From: other, To: e,
			text: fmt.Sprintf("%s and %s have the same address", other.label(), e.label()),
			hint: fmt.Sprintf("ask the administrator to give each host its own address; if %s is a bridge for containers, exclude it", e.Interface),
		})
	}
}

// ethernetMAC is the length of an Ethernet address as text.
const ethernetMAC = len("00:00:00:00:00:00")

// explainCertain finds causes that do not depend on the reports of other hosts.
func (d *diagnosis) explainCertain(r *Result) *Finding {
	t := r.Bound
	if r.OK() || t.Outcome == NotTried {
		return nil
	}
	switch t.Outcome {
	case OtherHost:
		return d.newFinding(r, DuplicateAddress, Broken,
			fmt.Sprintf("%s connects to %s and %s answers", r.From.label(), r.To.label(), d.nameOfAnswering(t)),
			fmt.Sprintf("find the host with address %s by `ip neighbour show %s` on %s, and give each host its own address", r.To.Addr, r.To.Addr, r.From.Host))
	case NoRoute, Prohibited, Blackhole, LinkDown, NoAddress:
		if r.Kernel.Leaves == "" { // otherwise a router sent the error
			return d.explainLocalRoute(r)
		}
	case Unreachable:
		if r.Kernel.Refuses != "" {
			return d.explainLocalRoute(r)
		}
	}
	// InfiniBand addresses are longer, and include flags that differ.
	if m := r.Kernel.MAC; len(m) == ethernetMAC && len(r.To.MAC) == ethernetMAC && m != r.To.MAC &&
		!r.Kernel.Via.IsValid() && r.Kernel.Leaves == r.From.Interface {
		return d.newFinding(r, DuplicateAddress, Broken,
			fmt.Sprintf("%s finds %s at link-layer address %s, but %s has %s: a different machine also has the address %s",
				r.From.label(), r.To.Addr, r.Kernel.MAC, r.To.label(), r.To.MAC, r.To.Addr),
			fmt.Sprintf("ask the administrator which machine has the link-layer address %s and the address %s", r.Kernel.MAC, r.To.Addr))
	}
	return nil
}

// explainLocalRoute explains packets that never leave their host.
func (d *diagnosis) explainLocalRoute(r *Result) *Finding {
	from, to := r.From, r.To
	hint := fmt.Sprintf("ask the administrator to correct the routes of %s: see `ip route get %s from %s`", from.Host, to.Addr, from.Addr)
	what := map[Outcome]string{
		Blackhole:   "a route of %[1]s silently drops packets to %[2]s (blackhole, or a route that does not allow this source address)",
		Prohibited:  "a route or filter of %[1]s prohibits packets to %[2]s",
		Unreachable: "a route of %[1]s makes %[2]s unreachable",
		NoRoute:     "%[1]s has no route to %[2]s",
		LinkDown:    "the link from %[1]s to %[2]s is down",
		NoAddress:   "%[1]s no longer has its address to reach %[2]s",
	}[r.Bound.Outcome]
	text := fmt.Sprintf(what, from.label(), to.label())
	back := d.reverse(r)
	switch {
	case r.Bound.Outcome == LinkDown || r.Bound.Outcome == NoAddress:
		return d.newFinding(r, InterfaceDown, Broken, text, hint)
	case d.unrouted(r) && inDifferentSubnets(from, to):
		text += fmt.Sprintf("; their subnets are %s and %s", from.Prefix.Masked(), to.Prefix.Masked())
	case back != nil && (d.hasReceived(from, to) || back.Bound.Outcome == TimedOut && back.Kernel.Leaves != ""):
		return d.newFinding(r, AsymmetricRoute, Broken, text+", but packets in the other direction have a route", hint)
	case from.Prefix.IsValid() && to.Prefix.IsValid() && from.Prefix.Masked() != to.Prefix.Masked():
		text += fmt.Sprintf("; their subnets are %s and %s", from.Prefix.Masked(), to.Prefix.Masked())
	}
	return d.newFinding(r, NoCommonNetwork, Broken, text, hint)
}

// nameOfAnswering returns the name of the host that answered instead of the peer.
func (d *diagnosis) nameOfAnswering(t Trial) string {
	for _, rep := range d.reports {
		if rep.Endpoint.ID == t.By {
			return rep.Endpoint.label()
		}
	}
	if t.ByHost != "" {
		return t.ByHost
	}
	return "a different host"
}

func (d *diagnosis) newFinding(r *Result, c Cause, l Level, text, hint string) *Finding {
	return &Finding{Cause: c, Level: l, From: r.From, To: r.To, text: text, hint: hint}
}
