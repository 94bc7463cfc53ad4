package probe

import (
	"fmt"
	"net/netip"
)

// broken explains a pair whose sockets do not work, from the evidence of both hosts.
func (d *diagnosis) broken(r *Result) *Finding {
	t := r.Bound
	if r.OK() || t.Outcome == NotTried {
		return nil
	}
	from, to := r.From.place(), r.To.place()
	switch t.Stage {
	case StageConnect:
		switch t.Outcome {
		case Refused:
			return d.firewall(r, fmt.Sprintf("%s listens on port %d, but %s is refused there (RST)", to, r.To.TCP, from))
		case TimedOut, Unreachable, NoRoute, Prohibited:
			return d.unconnected(r)
		}
	case StageGreet:
		switch t.Outcome {
		case Stranger:
			return d.finding(r, DuplicateAddress, Broken,
				fmt.Sprintf("%s connects to %s, and something answers that is not of this job: another machine with that address, or a proxy", from, to),
				fmt.Sprintf("ask the administrator which machine has %s, and whether connections between the hosts go through a proxy: ip neighbour show %s on %s", r.To.Addr, r.To.Addr, r.From.Host))
		case Reset:
			f := d.firewall(r, fmt.Sprintf("%s connects to %s, but no data pass: every connection ends before an answer comes", from, to))
			f.hint += fmt.Sprintf("; another machine that has the address %s looks the same: run `ip neighbour show %s` on %s", r.To.Addr, r.To.Addr, r.From.Host)
			return f
		case TimedOut:
			// The connection was established, so a slow link is equally likely.
			return d.finding(r, Unexplained, Broken,
				fmt.Sprintf("%s connects to %s, but no data pass (%s): the link is slow or full, or a proxy or firewall holds data back", from, to, t.Outcome),
				fmt.Sprintf("look whether other traffic fills the link (ip -s link show %s on %s, twice), and at its speed and errors (ethtool %s); if it is idle, ask the administrator for a proxy or firewall between the hosts", r.From.Interface, r.From.Host, r.From.Interface))
		}
	case StageSend, StageReceive:
		return d.large(r)
	}
	return d.finding(r, Unexplained, Broken,
		fmt.Sprintf("%s cannot talk to %s: %s: %s: %s", from, to, t.Stage, t.Outcome, t.Detail),
		fmt.Sprintf("try by hand from %s: ping -I %s %s", r.From.Host, r.From.Addr, r.To.Addr))
}

func (d *diagnosis) firewall(r *Result, text string) *Finding {
	return d.finding(r, Firewall, Broken, text, fmt.Sprintf(
		"ask the administrator to let the hosts of a job connect to each other on %s, on all ports: nft list ruleset on %s and on %s, and the rules of switches and clouds between them",
		r.To.Interface, r.To.Host, r.From.Host))
}

// large explains a pair that passes small messages but not large ones.
func (d *diagnosis) large(r *Result) *Finding {
	from, to := r.From, r.To
	if f := d.elsewhere(r, Broken, ", and large messages get stuck"); f != nil {
		return f
	}
	for _, way := range []struct {
		size     Size
		from, to Endpoint
	}{{r.Path.Up, from, to}, {r.Path.Down, to, from}} {
		if way.size.short() {
			return d.mtu(r, Broken, way.size, way.from, way.to)
		}
	}
	if r.Bound.Outcome == TimedOut && !r.Path.Small {
		return d.finding(r, MTUMismatch, Broken,
			fmt.Sprintf("small messages pass between %s (mtu %d) and %s (mtu %d), large ones get stuck", from.place(), from.MTU, to.place(), to.MTU),
			mtuHint(from, to, from.MTU))
	}
	text := fmt.Sprintf("small messages pass between %s and %s, large ones do not (%s: %s)", from.place(), to.place(), r.Bound.Stage, r.Bound.Outcome)
	return d.finding(r, Loss, Broken, text, fmt.Sprintf(
		"look for errors and drops on both hosts: ip -s -s link show %s, ethtool -S %s; a cable, a switch port or a checksum offload may be at fault", from.Interface, from.Interface))
}

func (d *diagnosis) mtu(r *Result, level Level, s Size, from, to Endpoint) *Finding {
	text := fmt.Sprintf("packets of %d bytes are lost from %s to %s; the largest that pass have %d", s.Sent, from.place(), to.place(), s.Passed)
	if from.MTU != to.MTU {
		text += fmt.Sprintf("; the mtu of %s is %d and that of %s is %d", from.Host, from.MTU, to.Host, to.MTU)
	} else {
		text += fmt.Sprintf("; both hosts have mtu %d, so it is a switch, bridge or tunnel between them", from.MTU)
	}
	f := d.finding(r, MTUMismatch, level, text, mtuHint(from, to, s.Sent))
	f.From, f.To = from, to
	return f
}

func mtuHint(from, to Endpoint, size int) string {
	return fmt.Sprintf("ask the administrator for one mtu on %s of %s, on %s of %s and on all between them; try: ping -M do -s %d -I %s %s",
		from.Interface, from.Host, to.Interface, to.Host, size-overhead(from.Addr), from.Addr, to.Addr)
}

// unconnected explains a connection attempt that got no answer or an ICMP message. It uses the
// evidence of this host first, then the peer's.
func (d *diagnosis) unconnected(r *Result) *Finding {
	if f := d.evidence(r); f != nil {
		return f
	}
	back := d.back(r)
	if back == nil {
		return d.silence(r)
	}
	var f *Finding
	if back.Bound.Stage == StageConnect && back.Bound.Outcome == TimedOut {
		f = d.evidence(back)
	} else {
		f = d.broken(back)
	}
	if f != nil {
		return f
	}
	return d.silence(r)
}

// evidence explains such an attempt if there is evidence other than silence.
func (d *diagnosis) evidence(r *Result) *Finding {
	from, to := r.From, r.To
	if f := d.wrongSubnet(r, Broken); f != nil {
		return f
	}
	for _, i := range r.ICMP {
		if f := d.icmp(r, i); f != nil {
			return f
		}
	}
	back := d.back(r)
	silent := r.Kernel.Neighbour == neighbourFailed || r.Kernel.Neighbour == neighbourIncomplete
	switch {
	case silent && r.Kernel.Via.IsValid():
		return d.finding(r, NoCommonNetwork, Broken,
			fmt.Sprintf("%s sends packets for %s to the gateway %s, which does not answer (%s)", from.place(), to.place(), r.Kernel.Via, resolution(from.Addr)),
			fmt.Sprintf("ask the administrator of %s about the gateway: ip route get %s from %s", from.Host, to.Addr, from.Addr))
	case silent:
		text := fmt.Sprintf("nobody answers %s for %s (%s)", from.place(), to.place(), resolution(from.Addr))
		if from.Prefix.IsValid() && to.Prefix.IsValid() && from.Prefix.Masked() != to.Prefix.Masked() {
			text += fmt.Sprintf("; their subnets are %s and %s", from.Prefix.Masked(), to.Prefix.Masked())
		}
		return d.finding(r, NoCommonNetwork, Broken, text, fmt.Sprintf(
			"ask the administrator whether %s of %s and %s of %s are on the same switch, VLAN and partition key",
			from.Interface, from.Host, to.Interface, to.Host))
	case r.Bound.Outcome != TimedOut:
		return d.firewall(r, fmt.Sprintf("%s is told that %s is %s, by a router or by a firewall that rejects (ICMP)", from.place(), to.place(), r.Bound.Outcome))
	case strays(r):
		return d.astray(r, Broken, fmt.Sprintf("packets from %s to %s leave by %s and get no answer%s", from.place(), to.place(), r.Kernel.Leaves, d.forced(r)))
	case r.Device.works():
		return d.astray(r, Broken, fmt.Sprintf("%s reaches %s only from a socket that is bound to %s", from.place(), to.place(), from.Interface))
	case r.Path.Small:
		return d.firewall(r, fmt.Sprintf("datagrams pass between %s and %s, but TCP connections to port %d get no answer", from.place(), to.place(), to.TCP))
	case back != nil && back.OK():
		return d.firewall(r, fmt.Sprintf("%s connects to %s, but connections the other way get no answer", to.place(), from.place()))
	case r.Path.Tried && d.hears(to, from) && !d.hears(from, to):
		return d.oneWay(r, to, from)
	case r.Path.Tried && d.hears(from, to) && !d.hears(to, from):
		return d.oneWay(r, from, to)
	case r.Path.Tried && d.hears(to, from) && d.hears(from, to):
		return d.firewall(r, fmt.Sprintf("datagrams of %s and %s arrive at each other, but no answers to them, and TCP connections to port %d get none", from.place(), to.place(), to.TCP))
	}
	return nil
}

// silence explains a pair if nothing arrives. While the hosts have each other's link-layer
// addresses in their neighbor tables, a dead switch port, a wrong VLAN, and a firewall that
// drops packets are indistinguishable.
func (d *diagnosis) silence(r *Result) *Finding {
	from, to := r.From, r.To
	text := fmt.Sprintf("no packet arrives in either direction between %s and %s", from.place(), to.place())
	if d.back(r) == nil || !r.Path.Tried { // no evidence from the other direction
		text = fmt.Sprintf("%s gets no answer at all from %s", from.place(), to.place())
	}
	gateway := ""
	if r.Kernel.Via.IsValid() {
		gateway = fmt.Sprintf(", then the gateway %s", r.Kernel.Via)
	}
	return d.finding(r, Silence, Broken, text+": the link, its VLAN, the switch port, or a firewall", fmt.Sprintf(
		"ask the administrator to check the switch ports of %s of %s and of %s of %s (link, VLAN)%s, and then for a firewall that drops: nft list ruleset on both",
		from.Interface, from.Host, to.Interface, to.Host, gateway))
}

// forced describes the result of the socket that is bound to the device.
func (d *diagnosis) forced(r *Result) string {
	switch {
	case r.Device.works():
		return fmt.Sprintf("; by %s they do", r.From.Interface)
	case r.Device.Outcome == NotAllowed || r.Device.Outcome == NotTried:
		return ""
	}
	return fmt.Sprintf("; by %s they get none either (%s)", r.From.Interface, r.Device.Outcome)
}

// oneWay explains a network that passes packets in only one direction.
func (d *diagnosis) oneWay(r *Result, hearing, deaf Endpoint) *Finding {
	f := d.finding(r, AsymmetricRoute, Broken,
		fmt.Sprintf("packets from %s arrive at %s, but none get back", deaf.place(), hearing.place()),
		fmt.Sprintf("ask the administrator for the way from %s to %s: ip route get %s from %s on %s, and the routers between them; reverse path filters (rp_filter) on %s drop what comes in by another interface",
			hearing.Addr, deaf.Addr, deaf.Addr, hearing.Addr, hearing.Host, deaf.Host))
	f.From, f.To = hearing, deaf
	return f
}

func (d *diagnosis) astray(r *Result, level Level, text string) *Finding {
	return d.finding(r, AsymmetricRoute, level, text, fmt.Sprintf(
		"ask the administrator of %s for a route to %s by %s, or to give each interface a subnet of its own: ip route get %s",
		r.From.Host, r.To.Addr, r.From.Interface, r.To.Addr))
}

// resolution names the protocol with which hosts on one link find each other.
func resolution(a netip.Addr) string {
	if a.Is4() {
		return "ARP"
	}
	return "neighbour discovery"
}

// icmp explains a pair by an ICMP error (RFC 792, RFC 1812, RFC 4443).
func (d *diagnosis) icmp(r *Result, i ICMP) *Finding {
	if i.From == r.From.Addr || !i.From.IsValid() {
		return nil // this host's own error: the neighbor does not answer
	}
	who := "the router " + i.From.String()
	if i.From == r.To.Addr {
		who = r.To.Host
	}
	said, prohibits := i.meaning()
	if said == "" {
		return nil
	}
	text := fmt.Sprintf("%s cannot reach %s: %s says %q", r.From.place(), r.To.place(), who, said)
	if prohibits || i.From == r.To.Addr {
		return d.firewall(r, text)
	}
	return d.finding(r, NoCommonNetwork, Broken, text, fmt.Sprintf(
		"ask the administrator about the route to %s at %s, and whether %s of %s and %s of %s are meant to reach each other",
		r.To.Addr, who, r.From.Interface, r.From.Host, r.To.Interface, r.To.Host))
}

// meaning describes a "destination unreachable" message and reports whether a filter rejected
// the packet. Filters often answer with a form of "host unreachable".
func (i ICMP) meaning() (text string, prohibits bool) {
	if i.V6 {
		if i.Type != 1 {
			return "", false
		}
		switch i.Code {
		case 0:
			return "no route to destination", false
		case 1:
			return "administratively prohibited", true
		case 3:
			return "address unreachable", false
		case 4:
			return "port unreachable", true
		case 5:
			return "source address failed policy", true
		case 6:
			return "reject route", true
		}
		return fmt.Sprintf("unreachable, code %d", i.Code), false
	}
	if i.Type != 3 {
		return "", false
	}
	switch i.Code {
	case 0:
		return "network unreachable", false
	case 1:
		return "host unreachable", false
	case 3:
		return "port unreachable", true
	case 4: // fragmentation needed: the path MTU search gives more detail
		return "", false
	case 9, 10, 13:
		return "administratively prohibited", true
	}
	return fmt.Sprintf("unreachable, code %d", i.Code), false
}
