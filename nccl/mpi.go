package nccl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/ddpbatch/ddpbatch/netif"
)

const (
	ucxDevices = "UCX_NET_DEVICES"

	ompiInclude    = "OMPI_MCA_btl_tcp_if_include"
	ompiExclude    = "OMPI_MCA_btl_tcp_if_exclude"
	ompiOOBInclude = "OMPI_MCA_oob_tcp_if_include"
	ompiOOBExclude = "OMPI_MCA_oob_tcp_if_exclude"
)

// setUCX sets UCX's devices: the port closest to the rank's GPU and the interface, without which
// UCX has no TCP. UCX still selects the transports on them (UCX_TLS).
func (p *planner) setUCX() {
	ports, reason := p.ucxPorts()
	devices := ports
	why := p.nameProblem()
	if why == "" {
		devices = append(devices, p.Choice.Interface)
	}
	if p.keepExisting(ucxDevices, func(value string) assessment {
		if value == "all" || strings.ContainsAny(value, "[*^") {
			return accept("set explicitly")
		}
		for _, device := range devices {
			if slices.Contains(strings.Split(value, ","), device) {
				return accept("it names %s", device)
			}
		}
		return accept("it does not name %s", strings.Join(devices, ","))
	}) {
		return
	}
	switch {
	case why != "" && len(ports) == 0:
		p.env.warn("%s is not set: %s", ucxDevices, why)
		return
	case why != "":
		p.env.note("UCX has no TCP in addition to %s, because %s names only adapters: %s", strings.Join(ports, ","), ucxDevices, why)
	case len(ports) > 0:
		reason += ", and the chosen interface for TCP"
	}
	p.add(ucxDevices, strings.Join(devices, ","), "%s", reason)
}

// ucxPorts returns the RDMA ports for UCX, or none if it uses only the interface.
func (p *planner) ucxPorts() (devices []string, reason string) {
	switch {
	case len(p.rails) == 0:
		return nil, "the chosen interface, for TCP"
	case p.LocalRank < 0:
		return ucxNames(p.rails...), "all ports, because several ranks share this environment"
	}
	r, gpu, d := p.railOf()
	if gpu == nil || d.class == unknownNode {
		return ucxNames(*r), fmt.Sprintf("the %s port for this rank", layerName(r.layer))
	}
	p.noteAffinity(r, gpu, d)
	return ucxNames(*r), fmt.Sprintf("the %s port closest to GPU %s (%s)", layerName(r.layer), gpu.PCI, distanceText(d))
}

// ucxNames returns ports in UCX's syntax, which always includes a port number.
func ucxNames(rails ...rail) []string {
	list := names(rails)
	for i := range rails {
		if rails[i].port == anyPort {
			list[i] += ":1"
		}
	}
	return list
}

func distanceText(d distance) string {
	return [...]string{"below the same PCI switch", "below the same PCI root", "on the same NUMA node", "on a different socket"}[d.class]
}

// setOpenMPI sets the network of Open MPI, for data and for its daemons.
func (p *planner) setOpenMPI() {
	p.setOpenMPIList(ompiInclude, ompiExclude)
	p.setOpenMPIList(ompiOOBInclude, ompiOOBExclude)
}

func (p *planner) setOpenMPIList(include, exclude string) {
	if p.keepExisting(include, p.assessOpenMPI) {
		return
	}
	if p.keepExisting(exclude, func(string) assessment {
		return accept("Open MPI accepts only one of the two lists, so %s is not set", include)
	}) {
		return
	}
	value, reason, why := p.openMPIValue()
	if why != "" {
		p.env.warn("%s is not set: %s", include, why)
		return
	}
	p.add(include, value, "%s", reason)
}

// openMPIValue returns the chosen network in Open MPI's syntax: an IPv4 network, which is
// equal on every host, or an interface name, which must start with a letter
// (btl_tcp_component.c, split_and_resolve).
func (p *planner) openMPIValue() (value, reason, why string) {
	c := &p.Choice
	if c.Addr.Is4() && c.Prefix.IsValid() {
		if c.Shadowed {
			return netip.PrefixFrom(c.Addr, 32).String(), "the address, because its interface has others", ""
		}
		if other := p.otherInterfaceIn(c.Prefix); other == "" {
			return c.Prefix.String(), "the chosen network, on every host", ""
		}
	}
	if why := p.nameProblem(); why != "" {
		return "", "", why
	}
	if !unicode.IsLetter(rune(c.Interface[0])) || c.Interface[0] >= 0x80 {
		return "", "", fmt.Sprintf("Open MPI treats %q as a network, because it does not start with a letter", c.Interface)
	}
	if c.Addr.Is6() {
		return c.Interface, "Open MPI accepts only IPv4 networks; it uses IPv6 if it was built with IPv6 support", ""
	}
	return c.Interface, fmt.Sprintf("the name, because %s is also on other interfaces", c.Prefix), ""
}

// otherInterfaceIn returns another interface with an address in a network, or "".
func (p *planner) otherInterfaceIn(network netip.Prefix) string {
	for i := range p.Inventory.Links {
		l := &p.Inventory.Links[i]
		if l.Name != p.Choice.Interface && slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return network.Contains(a.Addr()) }) {
			return l.Name
		}
	}
	return ""
}

// assessOpenMPI parses a list of interfaces and networks like Open MPI.
func (p *planner) assessOpenMPI(value string) assessment {
	c := &p.Choice
	for item := range strings.SplitSeq(value, ",") {
		if item == c.Interface || containsChoice(item, c) {
			return accept("it names %s", item)
		}
		if item == "" {
			continue
		}
		if first := item[0] | 0x20; first >= 'a' && first <= 'z' {
			continue
		}
		if network, err := netip.ParsePrefix(item); err != nil || network.Addr().Is6() {
			return reject("Open MPI accepts names that start with a letter, and networks such as 10.1.0.0/16, but not %q", item)
		}
	}
	return reject("it does not name %s (%s), which was chosen: %s", c.Interface, c.Addr, c.Why)
}

func containsChoice(item string, c *netif.Choice) bool {
	network, err := netip.ParsePrefix(item)
	return err == nil && network.Addr().Is4() && network.Contains(c.Addr)
}
