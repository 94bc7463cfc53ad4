package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Diagnose returns the causes of the problems in the reports, the worst first. It is a pure
// function of the reports and their order. It returns nothing if everything that was tried
// works.
//
// Certain causes come first: an interface that is down, an address that two hosts have, or a
// host's own route that drops packets. Diagnose returns at most one cause per pair of hosts,
// so it does not report the consequences of a cause.
func Diagnose(reports []Report) []Finding {
	d := newDiagnosis(reports)
	d.hosts()
	d.duplicates()
	for _, pass := range []func(*Result) *Finding{d.certain, d.broken, d.unbound, d.doubtful} {
		for i := range d.results {
			r := d.results[i]
			if d.blamed[r.From.ID] || d.blamed[r.To.ID] || d.explained[pairOf(r)] {
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
	reports   []Report
	results   []*Result
	way       map[[2]ID]*Result    // by source and destination host
	heard     map[[2]ID][]Sighting // by listening host and sending host
	blamed    map[ID]bool          // hosts with a finding of their own
	explained map[pair]bool
	findings  []Finding
}

func newDiagnosis(reports []Report) *diagnosis {
	d := &diagnosis{
		reports: reports, way: map[[2]ID]*Result{}, heard: map[[2]ID][]Sighting{},
		blamed: map[ID]bool{}, explained: map[pair]bool{},
	}
	for i := range reports {
		rep := &reports[i]
		for k := range rep.Results {
			r := &rep.Results[k]
			d.results = append(d.results, r)
			d.way[[2]ID{r.From.ID, r.To.ID}] = r
		}
		for _, s := range rep.Heard {
			key := [2]ID{rep.Endpoint.ID, s.ID}
			d.heard[key] = append(d.heard[key], s)
		}
	}
	return d
}

// back returns the result of the opposite direction, or nil.
func (d *diagnosis) back(r *Result) *Result { return d.way[[2]ID{r.To.ID, r.From.ID}] }

// hears reports whether host at received a datagram from host of.
func (d *diagnosis) hears(at, of Endpoint) bool { return len(d.heard[[2]ID{at.ID, of.ID}]) > 0 }

// hosts finds problems of single hosts.
func (d *diagnosis) hosts() {
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
		d.blamed[e.ID] = true
		d.findings = append(d.findings, Finding{
			Cause: InterfaceDown, Level: Broken, From: e, To: e,
			text: fmt.Sprintf("%s: %s", e.place(), why),
			hint: fmt.Sprintf("look at %s on %s (ip addr; dmesg), or keep the next job off that host: run `scontrol update JobId=ID ExcNodeList=%s` while it waits in the queue", e.Interface, e.Host, e.Host),
		})
	}
}

// duplicates finds addresses that several hosts of the job have.
func (d *diagnosis) duplicates() {
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
		d.blamed[other.ID], d.blamed[e.ID] = true, true
		d.findings = append(d.findings, Finding{
			Cause: DuplicateAddress, Level: Broken, From: other, To: e,
			text: fmt.Sprintf("%s and %s have the same address", other.place(), e.place()),
			hint: fmt.Sprintf("ask the administrator to give each host its own address; on a bridge for containers it is right that all hosts have the same: then exclude %s", e.Interface),
		})
	}
}

// ethernetMAC is the length of an Ethernet address as text.
const ethernetMAC = len("00:00:00:00:00:00")

// certain finds causes that do not depend on the reports of other hosts.
func (d *diagnosis) certain(r *Result) *Finding {
	t := r.Bound
	if r.OK() || t.Outcome == NotTried {
		return nil
	}
	switch t.Outcome {
	case OtherHost:
		return d.finding(r, DuplicateAddress, Broken,
			fmt.Sprintf("%s connects to %s and %s answers", r.From.place(), r.To.place(), d.nameOf(t)),
			fmt.Sprintf("ask the administrator which host has %s: ip neighbour show %s on %s, and give each host its own address", r.To.Addr, r.To.Addr, r.From.Host))
	case NoRoute, Prohibited, Blackhole, LinkDown, NoAddress:
		if r.Kernel.Leaves == "" { // otherwise a router sent the error
			return d.ownRoute(r)
		}
	case Unreachable:
		if r.Kernel.Refuses != "" {
			return d.ownRoute(r)
		}
	}
	// InfiniBand addresses are longer, and include flags that differ.
	if m := r.Kernel.MAC; len(m) == ethernetMAC && len(r.To.MAC) == ethernetMAC && m != r.To.MAC &&
		!r.Kernel.Via.IsValid() && r.Kernel.Leaves == r.From.Interface {
		return d.finding(r, DuplicateAddress, Broken,
			fmt.Sprintf("%s finds %s at %s, and that of %s is %s: another machine has the address %s",
				r.From.place(), r.To.Addr, r.Kernel.MAC, r.To.place(), r.To.MAC, r.To.Addr),
			fmt.Sprintf("ask the administrator which machine has the link-layer address %s and the address %s", r.Kernel.MAC, r.To.Addr))
	}
	return nil
}

// ownRoute explains packets that never leave their host.
func (d *diagnosis) ownRoute(r *Result) *Finding {
	from, to := r.From, r.To
	ask := fmt.Sprintf("ask the administrator of %s to correct its routing table; it shows in: ip route get %s from %s", from.Host, to.Addr, from.Addr)
	what := map[Outcome]string{
		Blackhole:   "a route of %[1]s drops packets to %[2]s without a word (blackhole, or a route that its source address may not use)",
		Prohibited:  "a route or filter of %[1]s forbids packets to %[2]s",
		Unreachable: "a route of %[1]s makes %[2]s unreachable",
		NoRoute:     "no route of %[1]s leads to %[2]s",
		LinkDown:    "the link of %[1]s that leads to %[2]s is down",
		NoAddress:   "%[1]s no longer has the address to reach %[2]s from",
	}[r.Bound.Outcome]
	text := fmt.Sprintf(what, from.place(), to.place())
	back := d.back(r)
	switch {
	case r.Bound.Outcome == LinkDown || r.Bound.Outcome == NoAddress:
		return d.finding(r, InterfaceDown, Broken, text, ask)
	case d.unrouted(r) && apart(from, to):
		text += fmt.Sprintf("; their subnets are %s and %s", from.Prefix.Masked(), to.Prefix.Masked())
	case back != nil && (d.hears(from, to) || back.Bound.Outcome == TimedOut && back.Kernel.Leaves != ""):
		return d.finding(r, AsymmetricRoute, Broken, text+", while packets the other way have one", ask)
	case from.Prefix.IsValid() && to.Prefix.IsValid() && from.Prefix.Masked() != to.Prefix.Masked():
		text += fmt.Sprintf("; their subnets are %s and %s", from.Prefix.Masked(), to.Prefix.Masked())
	}
	return d.finding(r, NoCommonNetwork, Broken, text, ask)
}

// nameOf returns the name of the host that answered instead of the peer.
func (d *diagnosis) nameOf(t Trial) string {
	for _, rep := range d.reports {
		if rep.Endpoint.ID == t.By {
			return rep.Endpoint.place()
		}
	}
	if t.ByHost != "" {
		return t.ByHost
	}
	return "another host"
}

func (d *diagnosis) finding(r *Result, c Cause, l Level, text, hint string) *Finding {
	return &Finding{Cause: c, Level: l, From: r.From, To: r.To, text: text, hint: hint}
}
