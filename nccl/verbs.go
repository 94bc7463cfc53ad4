package nccl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// NCCL's variables for InfiniBand and RoCE (NCCL User Guide, "Environment Variables").
const (
	ibDisable    = "NCCL_IB_DISABLE"
	ibHCA        = "NCCL_IB_HCA"
	ibGID        = "NCCL_IB_GID_INDEX"
	ibAddrFamily = "NCCL_IB_ADDR_FAMILY"
	ibAddrRange  = "NCCL_IB_ADDR_RANGE"
	crossNIC     = "NCCL_CROSS_NIC"
)

// verbs selects the RDMA ports for NCCL's data, or disables RDMA.
func (p *planner) verbs() {
	rails, rest := survey(&p.Inventory, &p.Choice, p.Job.Layer, p.Exclude)
	if p.disabled(rails, p.barred(rest)) {
		for _, name := range []string{ibHCA, ibGID, ibAddrFamily, ibAddrRange, crossNIC} {
			p.kept(name, func(string) verdict { return right("without effect on InfiniBand and RoCE, which are off") })
		}
		return
	}
	if p.Job.Hosts == 0 && !p.onFabric(rails) {
		p.env.note("%s is left to NCCL: %s are on networks of which this host alone does not show that the others are on them", ibHCA, strings.Join(names(rails), ", "))
		rails = nil
	}
	p.rails = rails
	p.adapters(rest)
	p.gid()
	p.crossing()
}

// disabled decides on NCCL_IB_DISABLE and reports whether RDMA is off. It is off if one host
// has no usable port, because NCCL on the other hosts would wait for it indefinitely. It is
// also off if every port that NCCL would find on this host is barred.
func (p *planner) disabled(rails []rail, barred []aside) bool {
	why := p.Job.WithoutRDMA
	v, set := p.given(ibDisable)
	off := set && atoi(v.Value) != 0
	switch {
	case set && off && why == "" && len(rails) > 0:
		p.keep(v, wrong("%s work here, and NCCL uses TCP instead: unset it", strings.Join(names(rails), ", ")))
	case set && off:
		p.keep(v, right("NCCL uses TCP"))
	case set && why != "":
		p.keep(v, wrong("%s: NCCL will fail or hang unless it is 1 on every host", why))
	case set:
		p.keep(v, right("InfiniBand and RoCE are on, as they are by default"))
	case why != "":
		p.set(ibDisable, "1", "%s, so NCCL uses TCP on every host", why)
		return true
	case len(rails) == 0 && len(barred) > 0:
		if _, listed := p.given(ibHCA); listed {
			return false // explicit choice of ports by the user
		}
		p.set(ibDisable, "1", "no InfiniBand or RoCE port is left for NCCL, which would take %s", reasons(barred))
		if r := &barred[0].rail; p.Job.Hosts == 0 && !r.excluded(p.Exclude) && r.wantsAddress() {
			p.env.warn("%s", withoutAddress(r, hostName([]netif.Inventory{p.Inventory}, 0)))
		}
		return true
	}
	return off
}

// barred returns the ports that NCCL would use by default but must not use: ports of excluded
// interfaces, and RoCE ports without an IP address.
func (p *planner) barred(rest []aside) []aside {
	return slices.DeleteFunc(slices.Clone(rest), func(a aside) bool {
		return !a.rail.found() || !a.rail.excluded(p.Exclude) && !a.rail.lacksAddress()
	})
}

// reasons lists ports that do not carry data, each with its reason.
func reasons(ports []aside) string {
	words := make([]string, len(ports))
	for i := range ports {
		words[i] = fmt.Sprintf("%s (%s)", &ports[i].rail, ports[i].why)
	}
	return listed(words)
}

// onFabric reports whether other hosts are probably on the ports' network. This is true for
// InfiniBand. RoCE must be on the chosen network or have a route through a gateway.
func (p *planner) onFabric(rails []rail) bool {
	if len(rails) == 0 {
		return true
	}
	for i := range rails {
		r := &rails[i]
		if r.layer == infiniBand || r.has(&p.Choice) {
			return true
		}
		for _, route := range p.Inventory.Routes {
			if route.Via.IsValid() && route.Dst.Bits() > 0 && r.isOn(route.Dev) {
				return true
			}
		}
	}
	return false
}

func (r *rail) isOn(link string) bool {
	for _, l := range r.links {
		if l.Name == link {
			return true
		}
	}
	return false
}

// adapters decides on NCCL_IB_HCA, the exact ports. NCCL itself determines which port is close
// to which GPU.
func (p *planner) adapters(rest []aside) {
	if p.kept(ibHCA, func(value string) verdict { return p.judgeAdapters(value, rest) }) {
		return
	}
	if len(p.rails) == 0 {
		p.keepOff(p.barred(rest))
		return
	}
	var left []string
	for _, a := range rest {
		left = append(left, a.rail.String())
		p.env.note("%s is not in %s: %s", &a.rail, ibHCA, a.why)
	}
	reason := strconv.Itoa(len(p.rails)) + " active " + speak(p.rails[0].layer) + " ports of " + gigabits(p.rails[0].rate)
	if len(p.rails) == 1 {
		reason = "the active " + speak(p.rails[0].layer) + " port of " + gigabits(p.rails[0].rate)
	}
	if len(left) > 0 {
		reason += "; not " + strings.Join(left, ", ")
	}
	if len(p.rails) > maxPorts {
		p.env.warn("%s does not name them: NCCL reads %d ports of a list, and there are %d", ibHCA, maxPorts, len(p.rails))
		p.keepOff(p.barred(rest))
		return
	}
	p.set(ibHCA, "="+strings.Join(names(p.rails), ","), "%s", reason)
}

// keepOff lists the ports that NCCL must not use, for the case that the allowed ports are not
// listed.
func (p *planner) keepOff(barred []aside) {
	if len(barred) == 0 {
		return
	}
	if len(barred) > maxPorts {
		p.env.warn("%s is not set: NCCL reads %d ports of a list, and %d must not be used", ibHCA, maxPorts, len(barred))
		return
	}
	list := make([]string, len(barred))
	for i := range barred {
		list[i] = barred[i].rail.String()
	}
	p.set(ibHCA, "^="+strings.Join(list, ","), "all but %s", reasons(barred))
}

func (p *planner) judgeAdapters(value string, rest []aside) verdict {
	l := parseList(value, maxPorts)
	if len(p.rails) == 0 {
		allowed := slices.DeleteFunc(p.barred(rest), func(a aside) bool { return !l.allows(a.rail.device, a.rail.port) })
		if len(allowed) > 0 {
			return wrong("it allows %s", reasons(allowed))
		}
		return right("no port that works was found here to compare it with")
	}
	var missed, extra []string
	for i := range p.rails {
		if r := &p.rails[i]; !l.allows(r.device, r.port) {
			missed = append(missed, r.String())
		}
	}
	for i := range rest {
		if r := &rest[i].rail; r.active && l.allows(r.device, r.port) {
			extra = append(extra, r.String()+" ("+rest[i].why+")")
		}
	}
	for _, i := range l.items {
		if longer := p.longerThan(i.name); !l.exact && len(longer) > 0 {
			extra = append(extra, fmt.Sprintf("%s, of which %s is a prefix: write =%s", strings.Join(longer, ", "), i.name, i.name))
		}
	}
	switch {
	case len(missed) == len(p.rails):
		return wrong("it allows none of the ports that work, %s, so NCCL would use TCP", strings.Join(missed, ", "))
	case len(extra) > 0:
		return wrong("it also allows %s", strings.Join(extra, ", "))
	case len(missed) > 0:
		return right("it leaves out %s, which work", strings.Join(missed, ", "))
	}
	return right("it allows every port that works")
}

// longerThan returns the adapters whose names start with the name of another adapter.
func (p *planner) longerThan(name string) []string {
	var longer []string
	whole := false
	for _, r := range ports(&p.Inventory) {
		whole = whole || r.device == name
		if r.device != name && strings.HasPrefix(r.device, name) && !slices.Contains(longer, r.device) {
			longer = append(longer, r.device)
		}
	}
	if !whole {
		return nil // intended as a prefix
	}
	return longer
}

// crossing decides on NCCL_CROSS_NIC. If the rails are separate networks, a connection between
// two rails fails (ibv_modify_qp, "Network is unreachable" or 110).
func (p *planner) crossing() {
	from, to := p.apartRails()
	judge := func(value string) verdict {
		if from != nil && atoi(value) != 0 {
			return wrong("%s has no route to the network of %s, so NCCL must not connect one rail to another: set it to 0", from, to)
		}
		return right("it is for the site to know")
	}
	if p.kept(crossNIC, judge) || from == nil {
		return
	}
	p.set(crossNIC, "0", "each rail is a network of its own: %s has no route to that of %s", from, to)
}

// apartRails returns two RoCE ports of which the first cannot reach the second's network.
func (p *planner) apartRails() (from, to *rail) {
	for i := range p.rails {
		a := &p.rails[i]
		if a.layer != ethernet || !a.hasAddress() {
			continue
		}
		for j := range p.rails {
			if b := &p.rails[j]; i != j && b.layer == ethernet && b.hasAddress() && !a.reaches(b, p.Inventory.Routes) {
				return a, b
			}
		}
	}
	return nil, nil
}
