package probe

import "fmt"

// strays says whether packets leave by another interface than the chosen one.
func strays(r *Result) bool {
	return r != nil && r.Kernel.Leaves != "" && r.Kernel.Leaves != r.From.Interface && !r.From.Routed
}

// elsewhere explains packets that leave by another interface than the chosen one,
// of either host. What they meet there says nothing about the chosen network.
func (d *diagnosis) elsewhere(r *Result, level Level, end string) *Finding {
	for _, way := range []*Result{r, d.back(r)} {
		if !strays(way) {
			continue
		}
		if f := d.wrongSubnet(r, level); f != nil {
			return f
		}
		return d.astray(way, level, fmt.Sprintf("packets from %s to %s leave by %s%s", way.From.place(), way.To.place(), way.Kernel.Leaves, end))
	}
	return nil
}

// wrongSubnet explains hosts of which neither is in the other's subnet, and that
// no route joins by the chosen interfaces: then a route is not what is missing.
func (d *diagnosis) wrongSubnet(r *Result, level Level) *Finding {
	from, to := r.From, r.To
	if !apart(from, to) || !d.unrouted(r) {
		return nil
	}
	a, b := from.Prefix.Masked(), to.Prefix.Masked()
	odd, others := to, from // the one that fewer hosts agree with
	if d.within(from) < d.within(to) {
		odd, others = from, to
	}
	return d.finding(r, NoCommonNetwork, level,
		fmt.Sprintf("wrong subnet: %s is in %s and %s in %s, and no route by these interfaces joins them", from.place(), a, to.place(), b),
		fmt.Sprintf("ask the administrator which subnet %s of %s should be in, %s as that of %s or %s: ip addr show %s on both",
			odd.Interface, odd.Host, others.Prefix.Masked(), others.Host, odd.Prefix.Masked(), odd.Interface))
}

// apart says whether neither host is in the other's subnet.
func apart(a, b Endpoint) bool {
	return a.Prefix.IsValid() && b.Prefix.IsValid() && !a.Prefix.Contains(b.Addr) && !b.Prefix.Contains(a.Addr)
}

// unrouted says whether neither host's kernel sends packets to the other by the
// chosen interface, as far as it is known, and it is known of one at least.
func (d *diagnosis) unrouted(r *Result) bool {
	known := false
	for _, way := range []*Result{r, d.back(r)} {
		switch {
		case way == nil:
		case way.From.Routed || way.Kernel.Leaves == way.From.Interface:
			return false
		default:
			known = known || way.Kernel.Leaves != "" || way.Kernel.Refuses != ""
		}
	}
	return known
}

// within counts the hosts of the job that are in an endpoint's subnet.
func (d *diagnosis) within(e Endpoint) (n int) {
	for _, rep := range d.reports {
		if e.Prefix.Contains(rep.Endpoint.Addr) {
			n++
		}
	}
	return n
}
