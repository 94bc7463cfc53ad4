package nccl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
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

// setRDMA selects the RDMA ports for NCCL's data, or disables RDMA.
func (p *planner) setRDMA() {
	rails, rest := survey(&p.Inventory, &p.Choice, p.Job.Layer, p.Exclude)
	if p.setDisable(rails, p.forbiddenPorts(rest)) {
		for _, name := range []string{ibHCA, ibGID, ibAddrFamily, ibAddrRange, crossNIC} {
			p.keepExisting(name, func(string) assessment { return accept("no effect: InfiniBand and RoCE are disabled") })
		}
		return
	}
	if p.Job.Hosts == 0 && !p.onFabric(rails) {
		p.env.note("%s is not set: this host does not know whether the other hosts are on the networks of %s", ibHCA, strings.Join(names(rails), ", "))
		rails = nil
	}
	p.rails = rails
	p.setAdapters(rest)
	p.setGID()
	p.setCrossNIC()
}

// setDisable decides on NCCL_IB_DISABLE and reports whether RDMA is off. It is off if one host
// has no usable port, because NCCL on the other hosts would wait for it indefinitely. It is
// also off if every port that NCCL would find on this host is forbidden.
func (p *planner) setDisable(rails []rail, forbiddenPorts []skippedPort) bool {
	why := p.Job.WithoutRDMA
	v, set := p.existing(ibDisable)
	off := set && atoi(v.Value) != 0
	switch {
	case set && off && why == "" && len(rails) > 0:
		p.addExisting(v, reject("%s are usable, but NCCL uses TCP: unset it", strings.Join(names(rails), ", ")))
	case set && off:
		p.addExisting(v, accept("NCCL uses TCP"))
	case set && why != "":
		p.addExisting(v, reject("%s: NCCL will fail or hang unless it is 1 on every host", why))
	case set:
		p.addExisting(v, accept("InfiniBand and RoCE are enabled, as by default"))
	case why != "":
		p.add(ibDisable, "1", "%s, so NCCL uses TCP on every host", why)
		return true
	case len(rails) == 0 && len(forbiddenPorts) > 0:
		if _, listed := p.existing(ibHCA); listed {
			return false // explicit choice of ports by the user
		}
		p.add(ibDisable, "1", "no usable InfiniBand or RoCE port; NCCL would use %s", portReasons(forbiddenPorts))
		if r := &forbiddenPorts[0].rail; p.Job.Hosts == 0 && !r.excluded(p.Exclude) && r.wantsAddress() {
			p.env.warn("%s", withoutAddress(r, hostName([]netif.Inventory{p.Inventory}, 0)))
		}
		return true
	}
	return off
}

// forbiddenPorts returns the ports that NCCL would use by default but must not use: ports of excluded
// interfaces, and RoCE ports without an IP address.
func (p *planner) forbiddenPorts(rest []skippedPort) []skippedPort {
	return slices.DeleteFunc(slices.Clone(rest), func(a skippedPort) bool {
		return !a.rail.usedByDefault() || !a.rail.excluded(p.Exclude) && !a.rail.lacksAddress()
	})
}

// portReasons lists ports that do not carry data, each with its reason.
func portReasons(ports []skippedPort) string {
	words := make([]string, len(ports))
	for i := range ports {
		words[i] = fmt.Sprintf("%s (%s)", &ports[i].rail, ports[i].why)
	}
	return format.List(words, maxHosts)
}

// onFabric reports whether other hosts are probably on the ports' network. This is true for
// InfiniBand. RoCE must be on the chosen network or have a route through a gateway.
func (p *planner) onFabric(rails []rail) bool {
	if len(rails) == 0 {
		return true
	}
	for i := range rails {
		r := &rails[i]
		if r.layer == infiniBand || r.isBelow(&p.Choice) {
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
	return slices.ContainsFunc(r.links, func(l *netif.Link) bool { return l.Name == link })
}

// setAdapters decides on NCCL_IB_HCA, the exact ports. NCCL itself determines which port is close
// to which GPU.
func (p *planner) setAdapters(rest []skippedPort) {
	if p.keepExisting(ibHCA, func(value string) assessment { return p.assessAdapters(value, rest) }) {
		return
	}
	if len(p.rails) == 0 {
		p.excludePorts(p.forbiddenPorts(rest))
		return
	}
	var left []string
	for _, a := range rest {
		left = append(left, a.rail.String())
		p.env.note("%s is not in %s: %s", &a.rail, ibHCA, a.why)
	}
	reason := strconv.Itoa(len(p.rails)) + " active " + layerName(p.rails[0].layer) + " ports of " + rateText(p.rails[0].rate)
	if len(p.rails) == 1 {
		reason = "the active " + layerName(p.rails[0].layer) + " port of " + rateText(p.rails[0].rate)
	}
	if len(left) > 0 {
		reason += "; not " + strings.Join(left, ", ")
	}
	if len(p.rails) > maxPorts {
		p.env.warn("%s does not list the ports: NCCL reads at most %d, and there are %d", ibHCA, maxPorts, len(p.rails))
		p.excludePorts(p.forbiddenPorts(rest))
		return
	}
	p.add(ibHCA, "="+strings.Join(names(p.rails), ","), "%s", reason)
}

// excludePorts lists the ports that NCCL must not use, for the case that the allowed ports are not
// listed.
func (p *planner) excludePorts(forbiddenPorts []skippedPort) {
	if len(forbiddenPorts) == 0 {
		return
	}
	if len(forbiddenPorts) > maxPorts {
		p.env.warn("%s is not set: NCCL reads at most %d ports, and %d must be excluded", ibHCA, maxPorts, len(forbiddenPorts))
		return
	}
	list := make([]string, len(forbiddenPorts))
	for i := range forbiddenPorts {
		list[i] = forbiddenPorts[i].rail.String()
	}
	p.add(ibHCA, "^="+strings.Join(list, ","), "all ports except %s", portReasons(forbiddenPorts))
}

// assessAdapters compares a value of NCCL_IB_HCA with the usable ports. rest has the other ports.
func (p *planner) assessAdapters(value string, rest []skippedPort) assessment {
	l := parseList(value, maxPorts)
	if len(p.rails) == 0 {
		allowed := slices.DeleteFunc(p.forbiddenPorts(rest), func(a skippedPort) bool { return !l.allows(a.rail.device, a.rail.port) })
		if len(allowed) > 0 {
			return reject("it allows %s", portReasons(allowed))
		}
		return accept("no usable port on this host to compare with")
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
		if longer := p.adaptersWithPrefix(i.name); !l.exact && len(longer) > 0 {
			extra = append(extra, fmt.Sprintf("%s, which start with %s: write =%s", strings.Join(longer, ", "), i.name, i.name))
		}
	}
	switch {
	case len(missed) == len(p.rails):
		return reject("it excludes all usable ports, %s, so NCCL uses TCP", strings.Join(missed, ", "))
	case len(extra) > 0:
		return reject("it also allows %s", strings.Join(extra, ", "))
	case len(missed) > 0:
		return accept("it excludes the usable ports %s", strings.Join(missed, ", "))
	}
	return accept("it allows every usable port")
}

// adaptersWithPrefix returns the adapters whose names start with the name of another adapter.
func (p *planner) adaptersWithPrefix(name string) []string {
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

// setCrossNIC decides on NCCL_CROSS_NIC. If the rails are separate networks, a connection between
// two rails fails (ibv_modify_qp, "Network is unreachable" or 110).
func (p *planner) setCrossNIC() {
	from, to := p.unroutedRails()
	assess := func(value string) assessment {
		if from != nil && atoi(value) != 0 {
			return reject("%s has no route to the network of %s, so NCCL must not connect one rail to another: set it to 0", from, to)
		}
		return accept("the site configures it")
	}
	if p.keepExisting(crossNIC, assess) || from == nil {
		return
	}
	p.add(crossNIC, "0", "each rail is a separate network: %s has no route to the network of %s", from, to)
}

// unroutedRails returns two RoCE ports of which the first cannot reach the second's network. All
// rails have the same layer, and RoCE ports have an address, see survey.
func (p *planner) unroutedRails() (from, to *rail) {
	if len(p.rails) == 0 || p.rails[0].layer != ethernet {
		return nil, nil
	}
	for i := range p.rails {
		for j := range p.rails {
			if a, b := &p.rails[i], &p.rails[j]; i != j && !a.reaches(b, p.Inventory.Routes) {
				return a, b
			}
		}
	}
	return nil, nil
}
