package probe

import "fmt"

// explainUnbound finds pairs that connect only from bound sockets.
func (d *diagnosis) explainUnbound(r *Result) *Finding {
	if !r.OK() || r.Bare.works() || r.Bare.Outcome == NotTried {
		return nil
	}
	return d.newRouteFinding(r, Unbound, fmt.Sprintf("%s reaches %s only from sockets that are bound to %s; other sockets use the address %s and leave by %s (%s)",
		r.From.label(), r.To.label(), r.From.Addr, r.Kernel.BareSource, r.Kernel.BareLeaves, r.Bare.Outcome))
}

// explainDoubtful finds problems of a pair whose bound sockets work. It checks the path of the
// packets before their size, because a size on a different network says nothing about the
// chosen one.
func (d *diagnosis) explainDoubtful(r *Result) *Finding {
	if !r.OK() {
		return nil
	}
	from, to := r.From, r.To
	if r.Bound.Source.IsValid() && r.Bound.Source != from.Addr {
		return d.newFinding(r, Translation, Doubtful,
			fmt.Sprintf("%s receives connections of %s from the address %s", to.label(), from.label(), r.Bound.Source),
			fmt.Sprintf("ask the administrator why addresses are translated between %s and %s (NAT, masquerading)", from.Host, to.Host))
	}
	if f := d.explainOtherPath(r); f != nil {
		return f
	}
	if r.Path.Up.short() {
		return d.newMTUFinding(r, Doubtful, r.Path.Up, from, to)
	}
	if r.Path.Down.short() {
		return d.newMTUFinding(r, Doubtful, r.Path.Down, to, from)
	}
	// Bound sockets, such as the sockets for datagrams, use the chosen path here.
	if r.Bare.Source.IsValid() && r.Bare.Source != from.Addr && r.Bare.Source != r.Bound.Source {
		return d.newRouteFinding(r, Doubtful, fmt.Sprintf("sockets of %s that are not bound reach %s from address %s by %s", from.label(), to.label(), r.Bare.Source, r.Kernel.BareLeaves))
	}
	return nil
}

// explainOtherPath finds packets that use a different path from the chosen one but still arrive.
func (d *diagnosis) explainOtherPath(r *Result) *Finding {
	if f := d.explainOtherInterface(r, Doubtful, ""); f != nil {
		return f
	}
	if f := d.explainArrival(r, r.From, r.To); f != nil {
		return f
	}
	return d.explainArrival(r, r.To, r.From)
}

// explainArrival finds packets that arrive on a different interface from the chosen one.
func (d *diagnosis) explainArrival(r *Result, from, to Endpoint) *Finding {
	for _, s := range d.received[[2]ID{to.ID, from.ID}] {
		if s.Interface == "" || s.Interface == to.Interface || to.Routed {
			continue
		}
		f := d.newFinding(r, AsymmetricRoute, Doubtful,
			fmt.Sprintf("packets from %s to %s arrive on %s of %s", from.label(), to.label(), s.Interface, to.Host),
			fmt.Sprintf("ask the administrator of %s to give each interface a separate subnet, or to set arp_ignore=1 and arp_announce=2: two interfaces in one subnet answer for each other's addresses", to.Host))
		f.From, f.To = from, to
		return f
	}
	return nil
}
