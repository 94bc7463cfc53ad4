package probe

import "fmt"

// strays reports whether packets leave by a different interface from the chosen one.
func strays(r *Result) bool {
	return r != nil && r.Kernel.Leaves != "" && r.Kernel.Leaves != r.From.Interface && !r.From.Routed
}

// elsewhere explains packets of either host that leave by a different interface from the
// chosen one. Problems on that path say nothing about the chosen network.
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

// wrongSubnet explains two hosts that are in different subnets without a route by the chosen
// interfaces. The cause is then the subnet, not a missing route.
func (d *diagnosis) wrongSubnet(r *Result, level Level) *Finding {
	from, to := r.From, r.To
	if !apart(from, to) || !d.unrouted(r) {
		return nil
	}
	a, b := from.Prefix.Masked(), to.Prefix.Masked()
	odd, others := to, from // the endpoint whose subnet contains fewer hosts
	if d.within(from) < d.within(to) {
		odd, others = from, to
	}
	return d.finding(r, NoCommonNetwork, level,
		fmt.Sprintf("wrong subnet: %s is in %s and %s in %s, and no route by these interfaces joins them", from.place(), a, to.place(), b),
		fmt.Sprintf("ask the administrator which subnet %s of %s should be in, %s as that of %s or %s: ip addr show %s on both",
			odd.Interface, odd.Host, others.Prefix.Masked(), others.Host, odd.Prefix.Masked(), odd.Interface))
}

// apart reports whether neither host is in the other's subnet.
func apart(a, b Endpoint) bool {
	return a.Prefix.IsValid() && b.Prefix.IsValid() && !a.Prefix.Contains(b.Addr) && !b.Prefix.Contains(a.Addr)
}

// unrouted reports whether neither host's kernel routes packets to the other by the chosen
// interface. It ignores hosts with unknown routes, and returns false if both are unknown.
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

// within returns the number of hosts in the job that are in an endpoint's subnet.
func (d *diagnosis) within(e Endpoint) (n int) {
	for _, rep := range d.reports {
		if e.Prefix.Contains(rep.Endpoint.Addr) {
			n++
		}
	}
	return n
}
