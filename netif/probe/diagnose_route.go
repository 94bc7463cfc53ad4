package probe

import "fmt"

// leavesElsewhere reports whether packets leave by a different interface from the chosen one.
func leavesElsewhere(r *Result) bool {
	return r != nil && r.Kernel.Leaves != "" && r.Kernel.Leaves != r.From.Interface && !r.From.Routed
}

// explainOtherInterface explains packets of either host that leave by a different interface from the
// chosen one. Problems on that path say nothing about the chosen network.
func (d *diagnosis) explainOtherInterface(r *Result, level Level, end string) *Finding {
	for _, result := range []*Result{r, d.reverse(r)} {
		if !leavesElsewhere(result) {
			continue
		}
		if f := d.explainWrongSubnet(r, level); f != nil {
			return f
		}
		return d.newRouteFinding(result, level, fmt.Sprintf("packets from %s to %s leave by %s%s", result.From.label(), result.To.label(), result.Kernel.Leaves, end))
	}
	return nil
}

// explainWrongSubnet explains two hosts that are in different subnets without a route by the chosen
// interfaces. The cause is then the subnet, not a missing route.
func (d *diagnosis) explainWrongSubnet(r *Result, level Level) *Finding {
	from, to := r.From, r.To
	if !inDifferentSubnets(from, to) || !d.unrouted(r) {
		return nil
	}
	a, b := from.Prefix.Masked(), to.Prefix.Masked()
	odd, others := to, from // the endpoint whose subnet contains fewer hosts
	if d.hostsInSubnet(from) < d.hostsInSubnet(to) {
		odd, others = from, to
	}
	return d.newFinding(r, NoCommonNetwork, level,
		fmt.Sprintf("wrong subnet: %s is in %s and %s is in %s, and no route connects these interfaces", from.label(), a, to.label(), b),
		fmt.Sprintf("ask the administrator which subnet %s of %s should be in, %s as on %s or %s: see `ip addr show %s` on both",
			odd.Interface, odd.Host, others.Prefix.Masked(), others.Host, odd.Prefix.Masked(), odd.Interface))
}

// inDifferentSubnets reports whether neither host is in the other's subnet.
func inDifferentSubnets(a, b Endpoint) bool {
	return a.Prefix.IsValid() && b.Prefix.IsValid() && !a.Prefix.Contains(b.Addr) && !b.Prefix.Contains(a.Addr)
}

// unrouted reports whether neither host's kernel routes packets to the other by the chosen
// interface. It ignores hosts with unknown routes, and returns false if both are unknown.
func (d *diagnosis) unrouted(r *Result) bool {
	known := false
	for _, result := range []*Result{r, d.reverse(r)} {
		switch {
		case result == nil:
		case result.From.Routed || result.Kernel.Leaves == result.From.Interface:
			return false
		default:
			known = known || result.Kernel.Leaves != "" || result.Kernel.Refuses != ""
		}
	}
	return known
}

// hostsInSubnet returns the number of hosts in the job that are in an endpoint's subnet.
func (d *diagnosis) hostsInSubnet(e Endpoint) (n int) {
	for _, rep := range d.reports {
		if e.Prefix.Contains(rep.Endpoint.Addr) {
			n++
		}
	}
	return n
}
