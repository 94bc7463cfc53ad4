package probe

import "fmt"

// doubtful finds what is wrong with a pair whose bound sockets work.
func (d *diagnosis) doubtful(r *Result) *Finding {
	if !r.OK() {
		return nil
	}
	from, to := r.From, r.To
	if !r.Bare.works() && r.Bare.Outcome != NotTried {
		text := fmt.Sprintf("%s reaches %s only from sockets that are bound to %s; the others get the address %s and leave by %s (%s)",
			from.place(), to.place(), from.Addr, r.Kernel.BareSource, r.Kernel.BareLeaves, r.Bare.Outcome)
		return d.astray(r, Unbound, text)
	}
	if r.Bound.Source.IsValid() && r.Bound.Source != from.Addr {
		return d.finding(r, Translation, Doubtful,
			fmt.Sprintf("%s sees connections from %s as coming from %s", to.place(), from.place(), r.Bound.Source),
			fmt.Sprintf("ask the administrator why addresses are translated between %s and %s (NAT, masquerading)", from.Host, to.Host))
	}
	if r.Path.Up.short() {
		return d.mtu(r, Doubtful, r.Path.Up, from, to)
	}
	if r.Path.Down.short() {
		return d.mtu(r, Doubtful, r.Path.Down, to, from)
	}
	if f := d.otherWay(r); f != nil {
		return f
	}
	return nil
}

// otherWay finds packets that take another way than that which was chosen, and
// arrive all the same.
func (d *diagnosis) otherWay(r *Result) *Finding {
	from, to := r.From, r.To
	switch {
	case !from.Routed && r.Kernel.Leaves != "" && r.Kernel.Leaves != from.Interface:
		return d.astray(r, Doubtful, fmt.Sprintf("packets from %s to %s leave by %s", from.place(), to.place(), r.Kernel.Leaves))
	case r.Bare.Source.IsValid() && r.Bare.Source != from.Addr && r.Bare.Source != r.Bound.Source:
		return d.astray(r, Doubtful, fmt.Sprintf("sockets of %s that are not bound reach %s from %s, by %s", from.place(), to.place(), r.Bare.Source, r.Kernel.BareLeaves))
	}
	for _, s := range d.heard[[2]ID{to.ID, from.ID}] {
		if s.Interface != "" && s.Interface != to.Interface && !to.Routed {
			f := d.finding(r, AsymmetricRoute, Doubtful,
				fmt.Sprintf("packets from %s to %s come in by %s of %s", from.place(), to.place(), s.Interface, to.Host),
				fmt.Sprintf("ask the administrator of %s to give each interface a subnet of its own, or to set arp_ignore=1 and arp_announce=2: two interfaces on one subnet answer for each other's addresses", to.Host))
			return f
		}
	}
	return nil
}
