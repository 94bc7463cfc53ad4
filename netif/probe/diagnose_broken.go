package probe

import (
	"fmt"
	"net/netip"
)

// explainBroken explains a pair whose sockets do not work, from the evidence of both hosts.
func (d *diagnosis) explainBroken(r *Result) *Finding {
	t := r.Bound
	if r.OK() || t.Outcome == NotTried {
		return nil
	}
	from, to := r.From.label(), r.To.label()
	switch t.Stage {
	case StageConnect:
		switch t.Outcome {
		case Refused:
			return d.newFirewallFinding(r, fmt.Sprintf("%s listens on port %d, but rejects connections from %s (RST)", to, r.To.TCP, from))
		case TimedOut, Unreachable, NoRoute, Prohibited:
			return d.explainUnconnected(r)
		}
	case StageGreet:
		switch t.Outcome {
		case Unauthenticated:
			return d.newFinding(r, DuplicateAddress, Broken,
				fmt.Sprintf("%s connects to %s, but a program outside of this job answers: a different machine with that address, or a proxy", from, to),
				fmt.Sprintf("ask the administrator which machine has %s (`ip neighbour show %s` on %s), and whether a proxy is between the hosts", r.To.Addr, r.To.Addr, r.From.Host))
		case Reset:
			f := d.newFirewallFinding(r, fmt.Sprintf("%s connects to %s, but each connection ends before an answer arrives", from, to))
			f.hint += fmt.Sprintf("; check also for a different machine with address %s: `ip neighbour show %s` on %s", r.To.Addr, r.To.Addr, r.From.Host)
			return f
		case TimedOut:
			// The connection was established, so a slow link is equally likely.
			return d.newFinding(r, Unexplained, Broken,
				fmt.Sprintf("%s connects to %s, but no data arrive (%s): the link is slow or saturated, or a proxy or firewall delays data", from, to, t.Outcome),
				fmt.Sprintf("check the traffic of the link (run `ip -s link show %s` on %s twice), and its speed and errors (`ethtool %s`); if it is idle, ask the administrator about a proxy or firewall between the hosts", r.From.Interface, r.From.Host, r.From.Interface))
		}
	case StageSend, StageReceive:
		return d.explainLargeLoss(r)
	}
	return d.newFinding(r, Unexplained, Broken,
		fmt.Sprintf("%s cannot communicate with %s: %s: %s: %s", from, to, t.Stage, t.Outcome, t.Detail),
		fmt.Sprintf("on %s, run `ping -I %s %s`", r.From.Host, r.From.Addr, r.To.Addr))
}

func (d *diagnosis) newFirewallFinding(r *Result, text string) *Finding {
	return d.newFinding(r, Firewall, Broken, text, fmt.Sprintf(
		"ask the administrator to allow connections between the hosts of a job on %s, on all ports: see `nft list ruleset` on %s and %s, and the rules of switches and clouds between them",
		r.To.Interface, r.To.Host, r.From.Host))
}

// explainLargeLoss explains a pair that passes small messages but not large ones.
func (d *diagnosis) explainLargeLoss(r *Result) *Finding {
	from, to := r.From, r.To
	if f := d.explainOtherInterface(r, Broken, ", and large messages time out"); f != nil {
		return f
	}
	for _, direction := range []struct {
		size     Size
		from, to Endpoint
	}{{r.Path.Up, from, to}, {r.Path.Down, to, from}} {
		if direction.size.short() {
			return d.newMTUFinding(r, Broken, direction.size, direction.from, direction.to)
		}
	}
	if r.Bound.Outcome == TimedOut && !r.Path.Small {
		return d.newFinding(r, MTUMismatch, Broken,
			fmt.Sprintf("small messages pass between %s (mtu %d) and %s (mtu %d), but large messages time out", from.label(), from.MTU, to.label(), to.MTU),
			mtuHint(from, to, from.MTU))
	}
	text := fmt.Sprintf("small messages pass between %s and %s, but large messages fail (%s: %s)", from.label(), to.label(), r.Bound.Stage, r.Bound.Outcome)
	return d.newFinding(r, Loss, Broken, text, fmt.Sprintf(
		"check for errors and drops on both hosts: `ip -s -s link show %s`, `ethtool -S %s`; possible causes are a cable, a switch port, and checksum offload", from.Interface, from.Interface))
}

func (d *diagnosis) newMTUFinding(r *Result, level Level, s Size, from, to Endpoint) *Finding {
	text := fmt.Sprintf("packets of %d bytes are lost from %s to %s; the largest that pass have %d", s.Sent, from.label(), to.label(), s.Passed)
	if from.MTU != to.MTU {
		text += fmt.Sprintf("; the mtu is %[2]d on %[1]s and %[4]d on %[3]s", from.Host, from.MTU, to.Host, to.MTU)
	} else {
		text += fmt.Sprintf("; both hosts have mtu %d, so the cause is a switch, bridge, or tunnel between them", from.MTU)
	}
	f := d.newFinding(r, MTUMismatch, level, text, mtuHint(from, to, s.Sent))
	f.From, f.To = from, to
	return f
}

func mtuHint(from, to Endpoint, size int) string {
	return fmt.Sprintf("ask the administrator to set the same mtu on %s of %s, on %s of %s, and on all devices between them; test with `ping -M do -s %d -I %s %s`",
		from.Interface, from.Host, to.Interface, to.Host, size-overhead(from.Addr), from.Addr, to.Addr)
}

// explainUnconnected explains a connection attempt that got no answer or an ICMP message. It uses the
// evidence of this host first, then the peer's.
func (d *diagnosis) explainUnconnected(r *Result) *Finding {
	if f := d.explainByEvidence(r); f != nil {
		return f
	}
	back := d.reverse(r)
	if back == nil {
		return d.explainSilence(r)
	}
	var f *Finding
	if back.Bound.Stage == StageConnect && back.Bound.Outcome == TimedOut {
		f = d.explainByEvidence(back)
	} else {
		f = d.explainBroken(back)
	}
	if f != nil {
		return f
	}
	return d.explainSilence(r)
}

// explainByEvidence explains a connection attempt if there is evidence other than silence.
func (d *diagnosis) explainByEvidence(r *Result) *Finding {
	from, to := r.From, r.To
	if f := d.explainWrongSubnet(r, Broken); f != nil {
		return f
	}
	for _, i := range r.ICMP {
		if f := d.explainICMP(r, i); f != nil {
			return f
		}
	}
	back := d.reverse(r)
	silent := r.Kernel.Neighbor == neighborFailed || r.Kernel.Neighbor == neighborIncomplete
	switch {
	case silent && r.Kernel.Via.IsValid():
		return d.newFinding(r, NoCommonNetwork, Broken,
			fmt.Sprintf("%s sends packets for %s to the gateway %s, which does not answer (%s)", from.label(), to.label(), r.Kernel.Via, resolutionProtocol(from.Addr)),
			fmt.Sprintf("ask the administrator of %s about the gateway: see `ip route get %s from %s`", from.Host, to.Addr, from.Addr))
	case silent:
		text := fmt.Sprintf("%s gets no reply from %s (%s)", from.label(), to.label(), resolutionProtocol(from.Addr))
		if from.Prefix.IsValid() && to.Prefix.IsValid() && from.Prefix.Masked() != to.Prefix.Masked() {
			text += fmt.Sprintf("; their subnets are %s and %s", from.Prefix.Masked(), to.Prefix.Masked())
		}
		return d.newFinding(r, NoCommonNetwork, Broken, text, fmt.Sprintf(
			"ask the administrator whether %s of %s and %s of %s are on the same switch, VLAN, and partition key",
			from.Interface, from.Host, to.Interface, to.Host))
	case r.Bound.Outcome != TimedOut:
		return d.newFirewallFinding(r, fmt.Sprintf("a router or firewall reports to %s that %s is %s (ICMP)", from.label(), to.label(), r.Bound.Outcome))
	case leavesElsewhere(r):
		return d.newRouteFinding(r, Broken, fmt.Sprintf("packets from %s to %s leave by %s and get no answer%s", from.label(), to.label(), r.Kernel.Leaves, d.describeDeviceTrial(r)))
	case r.Device.works():
		return d.newRouteFinding(r, Broken, fmt.Sprintf("%s reaches %s only from sockets that are bound to device %s", from.label(), to.label(), from.Interface))
	case r.Path.Small:
		return d.newFirewallFinding(r, fmt.Sprintf("datagrams pass between %s and %s, but TCP connections to port %d get no answer", from.label(), to.label(), to.TCP))
	case back != nil && back.OK():
		return d.newFirewallFinding(r, fmt.Sprintf("%s connects to %s, but connections in the other direction get no answer", to.label(), from.label()))
	case r.Path.Tried && d.hasReceived(to, from) && !d.hasReceived(from, to):
		return d.newOneWayFinding(r, to, from)
	case r.Path.Tried && d.hasReceived(from, to) && !d.hasReceived(to, from):
		return d.newOneWayFinding(r, from, to)
	case r.Path.Tried && d.hasReceived(to, from) && d.hasReceived(from, to):
		return d.newFirewallFinding(r, fmt.Sprintf("datagrams arrive in both directions between %s and %s, but replies do not, and TCP connections to port %d time out", from.label(), to.label(), to.TCP))
	}
	return nil
}

// explainSilence explains a pair if nothing arrives. While the hosts have each other's link-layer
// addresses in their neighbor tables, a dead switch port, a wrong VLAN, and a firewall that
// drops packets are indistinguishable.
func (d *diagnosis) explainSilence(r *Result) *Finding {
	from, to := r.From, r.To
	text := fmt.Sprintf("no packet arrives in either direction between %s and %s", from.label(), to.label())
	if d.reverse(r) == nil || !r.Path.Tried { // no evidence from the other direction
		text = fmt.Sprintf("%s gets no answer at all from %s", from.label(), to.label())
	}
	gateway := ""
	if r.Kernel.Via.IsValid() {
		gateway = fmt.Sprintf(", then the gateway %s", r.Kernel.Via)
	}
	return d.newFinding(r, Silence, Broken, text+": the link, its VLAN, the switch port, or a firewall", fmt.Sprintf(
		"ask the administrator to check the switch ports of %s of %s and of %s of %s (link, VLAN)%s, and then for a firewall that drops packets (`nft list ruleset` on both hosts)",
		from.Interface, from.Host, to.Interface, to.Host, gateway))
}

// describeDeviceTrial describes the result of the socket that is bound to the device.
func (d *diagnosis) describeDeviceTrial(r *Result) string {
	switch {
	case r.Device.works():
		return fmt.Sprintf("; sockets that are bound to device %s get answers", r.From.Interface)
	case r.Device.Outcome == NotAllowed || r.Device.Outcome == NotTried:
		return ""
	}
	return fmt.Sprintf("; sockets that are bound to device %s also get no answer (%s)", r.From.Interface, r.Device.Outcome)
}

// newOneWayFinding explains a network that passes packets in only one direction.
func (d *diagnosis) newOneWayFinding(r *Result, hearing, deaf Endpoint) *Finding {
	f := d.newFinding(r, AsymmetricRoute, Broken,
		fmt.Sprintf("packets from %s arrive at %s, but no packets return", deaf.label(), hearing.label()),
		fmt.Sprintf("ask the administrator to check the path from %s to %s: `ip route get %s from %s` on %s, the routers between them, and the reverse path filter (rp_filter) on %s, which drops packets that arrive on a different interface",
			hearing.Addr, deaf.Addr, deaf.Addr, hearing.Addr, hearing.Host, deaf.Host))
	f.From, f.To = hearing, deaf
	return f
}

func (d *diagnosis) newRouteFinding(r *Result, level Level, text string) *Finding {
	return d.newFinding(r, AsymmetricRoute, level, text, fmt.Sprintf(
		"ask the administrator of %s for a route to %s by %s, or for a separate subnet on each interface: see `ip route get %s`",
		r.From.Host, r.To.Addr, r.From.Interface, r.To.Addr))
}

// resolutionProtocol names the protocol with which hosts on one link find each other.
func resolutionProtocol(a netip.Addr) string {
	if a.Is4() {
		return "ARP"
	}
	return "neighbor discovery"
}

// explainICMP explains a pair by an ICMP error (RFC 792, RFC 1812, RFC 4443).
func (d *diagnosis) explainICMP(r *Result, i ICMP) *Finding {
	if i.From == r.From.Addr || !i.From.IsValid() {
		return nil // this host's own error: the neighbor does not answer
	}
	sender := "the router " + i.From.String()
	if i.From == r.To.Addr {
		sender = r.To.Host
	}
	reason, prohibits := i.meaning()
	if reason == "" {
		return nil
	}
	text := fmt.Sprintf("%s cannot reach %s: %s reports %q", r.From.label(), r.To.label(), sender, reason)
	if prohibits || i.From == r.To.Addr {
		return d.newFirewallFinding(r, text)
	}
	return d.newFinding(r, NoCommonNetwork, Broken, text, fmt.Sprintf(
		"ask the administrator about the route to %s at %s, and whether %s of %s and %s of %s should reach each other",
		r.To.Addr, sender, r.From.Interface, r.From.Host, r.To.Interface, r.To.Host))
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
