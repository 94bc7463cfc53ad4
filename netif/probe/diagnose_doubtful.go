package probe

import "fmt"

// unbound finds pairs that connect only from bound sockets.
func (d *diagnosis) unbound(r *Result) *Finding {
	if !r.OK() || r.Bare.works() || r.Bare.Outcome == NotTried {
		return nil
	}
	return d.astray(r, Unbound, fmt.Sprintf("%s reaches %s only from sockets that are bound to %s; the others get the address %s and leave by %s (%s)",
		r.From.place(), r.To.place(), r.From.Addr, r.Kernel.BareSource, r.Kernel.BareLeaves, r.Bare.Outcome))
}

// doubtful finds problems of a pair whose bound sockets work. It checks the path of the
// packets before their size, because a size on a different network says nothing about the
// chosen one.
func (d *diagnosis) doubtful(r *Result) *Finding {
	if !r.OK() {
		return nil
	}
	from, to := r.From, r.To
	if r.Bound.Source.IsValid() && r.Bound.Source != from.Addr {
		return d.finding(r, Translation, Doubtful,
			fmt.Sprintf("%s sees connections from %s as coming from %s", to.place(), from.place(), r.Bound.Source),
			fmt.Sprintf("ask the administrator why addresses are translated between %s and %s (NAT, masquerading)", from.Host, to.Host))
	}
	if f := d.otherWay(r); f != nil {
		return f
	}
	if r.Path.Up.short() {
		return d.mtu(r, Doubtful, r.Path.Up, from, to)
	}
	if r.Path.Down.short() {
		return d.mtu(r, Doubtful, r.Path.Down, to, from)
	}
	// Bound sockets, such as the sockets for datagrams, use the chosen path here.
	if r.Bare.Source.IsValid() && r.Bare.Source != from.Addr && r.Bare.Source != r.Bound.Source {
		return d.astray(r, Doubtful, fmt.Sprintf("sockets of %s that are not bound reach %s from %s, by %s", from.place(), to.place(), r.Bare.Source, r.Kernel.BareLeaves))
	}
	return nil
}

// otherWay finds packets that use a different path from the chosen one but still arrive.
func (d *diagnosis) otherWay(r *Result) *Finding {
	if f := d.elsewhere(r, Doubtful, ""); f != nil {
		return f
	}
	if f := d.comesIn(r, r.From, r.To); f != nil {
		return f
	}
	return d.comesIn(r, r.To, r.From)
}

// comesIn finds packets that arrive on a different interface from the chosen one.
func (d *diagnosis) comesIn(r *Result, from, to Endpoint) *Finding {
	for _, s := range d.heard[[2]ID{to.ID, from.ID}] {
		if s.Interface == "" || s.Interface == to.Interface || to.Routed {
			continue
		}
		f := d.finding(r, AsymmetricRoute, Doubtful,
			fmt.Sprintf("packets from %s to %s come in by %s of %s", from.place(), to.place(), s.Interface, to.Host),
			fmt.Sprintf("ask the administrator of %s to give each interface a subnet of its own, or to set arp_ignore=1 and arp_announce=2: two interfaces on one subnet answer for each other's addresses", to.Host))
		f.From, f.To = from, to
		return f
	}
	return nil
}
