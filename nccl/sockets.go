package nccl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Variables for the network interface, and NCCL's variables for the address family (NCCL User
// Guide, "Environment Variables"; PyTorch, torch.distributed, "Choosing the network interface
// to use").
const (
	ncclInterface = "NCCL_SOCKET_IFNAME"
	ncclFamily    = "NCCL_SOCKET_FAMILY"
	ncclCommID    = "NCCL_COMM_ID"
	glooInterface = "GLOO_SOCKET_IFNAME"
	tpInterface   = "TP_SOCKET_IFNAME"
)

// setSockets sets the interface and the address family of NCCL.
func (p *planner) setSockets() {
	p.setNCCLInterface()
	p.setFamily()
	p.keepExisting(ncclCommID, func(string) assessment {
		return reject("NCCL then ignores %s when it starts, and fails if hosts do not share a subnet: unset it", ncclInterface)
	})
}

// setNCCLInterface sets NCCL_SOCKET_IFNAME, or assesses the value of another source.
func (p *planner) setNCCLInterface() {
	c := &p.Choice
	v, set := p.existing(ncclInterface)
	if set && len(v.Value) > 1 {
		p.addExisting(v, p.assessInterface(v.Value))
		return
	}
	if set {
		p.env.note("%s=%q (from %s) is replaced: NCCL ignores values of fewer than two characters", ncclInterface, v.Value, v.From)
	}
	switch why := p.nameProblem(); {
	case why != "":
		p.env.warn("%s is not set: %s", ncclInterface, why)
	case c.Addr.IsLoopback() && c.Addr.Is6():
		p.env.warn("%s is not set: NCCL does not use the IPv6 loopback", ncclInterface)
	default:
		// Without "=", a name is a prefix, and eth1 also matches eth10.
		names := append([]string{c.Interface}, p.equalInterfaces()...)
		reason := "%s; = selects the exact name instead of a prefix"
		if len(names) > 1 {
			reason = "%s, and equal interfaces in the same subnet, over which NCCL distributes its sockets; = selects exact names instead of prefixes"
		}
		p.add(ncclInterface, "="+strings.Join(names, ","), reason, p.choiceReason())
	}
}

// equalInterfaces returns the other working ports of a fabric with several adapters per host. They have
// the same driver, speed, MTU, and subnet as the chosen port. NCCL uses the lowest index first, so
// equalInterfaces returns nothing if the chosen port does not have the lowest index.
func (p *planner) equalInterfaces() []string {
	c := &p.Choice
	at := slices.IndexFunc(p.Inventory.Links, func(l netif.Link) bool { return l.Name == c.Interface })
	if at < 0 || p.Inventory.Links[at].HCA == "" {
		return nil
	}
	chosen := p.Inventory.Links[at]
	var names []string
	for i := range p.Inventory.Links {
		l := &p.Inventory.Links[i]
		same := l.Name != chosen.Name && l.HCA != "" && l.Driver == chosen.Driver && l.Speed == chosen.Speed && l.MTU == chosen.MTU &&
			isUp(l) && !slices.Contains(p.Exclude, l.Name) &&
			slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return a.Masked() == c.Prefix.Masked() && !a.IsSingleIP() })
		if !same {
			continue
		}
		if l.Index < chosen.Index {
			return nil
		}
		names = append(names, l.Name)
	}
	return names[:min(len(names), maxInterfaces-1)]
}

// choiceReason returns the reason why the interface was chosen.
func (p *planner) choiceReason() string {
	if p.Choice.Why == "" {
		return fmt.Sprintf("%s is the address of this host", p.Choice.Addr)
	}
	return p.Choice.Why
}

func (p *planner) assessInterface(value string) assessment {
	c := &p.Choice
	l := parseList(value, maxInterfaces)
	if !l.allows(c.Interface, anyPort) {
		return reject("it does not allow %s (%s), which was chosen: %s", c.Interface, c.Addr, c.Why)
	}
	if l.exact || l.not {
		return accept("it allows %s", c.Interface)
	}
	// A prefix may match another interface. NCCL uses the matching interface with the lowest
	// index.
	var others []string
	for _, link := range p.Inventory.Links {
		if link.Name != c.Interface && link.Flags&netif.Running != 0 && len(link.Addrs) > 0 && l.allows(link.Name, anyPort) {
			others = append(others, link.Name)
		}
	}
	if len(others) > 0 {
		return accept("it allows %s and, as prefixes, %s", c.Interface, strings.Join(others, ", "))
	}
	return accept("it allows %s", c.Interface)
}

// setPlainName sets the interface of a library that accepts only plain names.
func (p *planner) setPlainName(name, library string) {
	c := &p.Choice
	v, set := p.existing(name)
	if !set || v.Value == "" {
		if why := p.nameProblem(); why != "" {
			p.env.warn("%s is not set: %s", name, why)
			return
		}
		p.add(name, c.Interface, "%s accepts only plain names, without = or ^", library)
		if c.Family == netif.IPv6 {
			p.env.note("%s uses the first address of %s, which may be an IPv4 address", library, c.Interface)
		}
		return
	}
	switch {
	case strings.HasPrefix(v.Value, "^") || strings.HasPrefix(v.Value, "="):
		p.addExisting(v, reject("%s accepts only plain names and cannot find this interface", library))
	case !slices.Contains(strings.Split(v.Value, ","), c.Interface):
		p.addExisting(v, reject("it does not name %s (%s), which was chosen: %s", c.Interface, c.Addr, c.Why))
	default:
		p.addExisting(v, accept("it names %s", c.Interface))
	}
}

// setFamily makes NCCL use the IPv6 address of an interface that also has IPv4.
func (p *planner) setFamily() {
	want := "AF_INET"
	if p.Choice.Family == netif.IPv6 {
		want = "AF_INET6"
	}
	v, set := p.existing(ncclFamily)
	switch {
	case set && v.Value == want:
		p.addExisting(v, accept("the family of %s", p.Choice.Addr))
	case set && v.Value != "":
		p.addExisting(v, reject("the chosen address %s is %s", p.Choice.Addr, want))
	case want == "AF_INET6":
		p.add(ncclFamily, want, "%s is an IPv6 address, and NCCL prefers IPv4", p.Choice.Addr)
	}
}

// nameProblem explains why an interface's name does not select the chosen address.
func (p *planner) nameProblem() string {
	c := &p.Choice
	switch {
	case c.Shadowed:
		return fmt.Sprintf("the name %s selects its first address, not %s; put %s on a separate interface, such as a dummy interface", c.Interface, c.Addr, c.Addr)
	case strings.Contains(c.Interface, ","):
		return fmt.Sprintf("the name %q contains a comma, which separates names", c.Interface)
	case strings.Contains(c.Interface, ":"):
		return fmt.Sprintf("%q is an alias, and the colon would start a port: put %s on a separate interface", c.Interface, c.Addr)
	}
	return ""
}
