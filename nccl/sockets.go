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

// sockets sets the interface and the address family of NCCL.
func (p *planner) sockets() {
	p.ncclInterface()
	p.family()
	p.kept(ncclCommID, func(string) verdict {
		return wrong("NCCL then ignores %s when it starts, and fails where hosts do not share a subnet: unset it", ncclInterface)
	})
}

func (p *planner) ncclInterface() {
	c := &p.Choice
	v, set := p.given(ncclInterface)
	if set && len(v.Value) > 1 {
		p.keep(v, p.judgeInterface(v.Value))
		return
	}
	if set {
		p.env.note("%s=%q (from %s) is replaced: NCCL ignores a value this short", ncclInterface, v.Value, v.From)
	}
	switch why := p.inexpressible(); {
	case why != "":
		p.env.warn("%s is not set: %s", ncclInterface, why)
	case c.Addr.IsLoopback() && c.Addr.Is6():
		p.env.warn("%s is not set: NCCL does not use the IPv6 loopback", ncclInterface)
	default:
		// Without "=", a name is a prefix, and eth1 also matches eth10.
		names := append([]string{c.Interface}, p.twins()...)
		reason := "%s; = is for this very name, which would be a prefix without it"
		if len(names) > 1 {
			reason = "%s, and its equals on the same subnet, which NCCL's sockets share the data among; = is for these very names"
		}
		p.set(ncclInterface, "="+strings.Join(names, ","), reason, p.because())
	}
}

// twins returns the other working ports of a fabric with several adapters per host. They have
// the same driver, speed, MTU, and subnet as the chosen port. NCCL uses the lowest index
// first, so twins returns nothing if the chosen port does not have the lowest index.
func (p *planner) twins() []string {
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
			live(l) && !slices.Contains(p.Exclude, l.Name) &&
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

// because returns the reason why the interface was chosen.
func (p *planner) because() string {
	if p.Choice.Why == "" {
		return fmt.Sprintf("%s is the address of this host", p.Choice.Addr)
	}
	return p.Choice.Why
}

func (p *planner) judgeInterface(value string) verdict {
	c := &p.Choice
	l := parseList(value, maxInterfaces)
	if !l.allows(c.Interface, anyPort) {
		return wrong("it does not allow %s (%s), which was chosen: %s", c.Interface, c.Addr, c.Why)
	}
	if l.exact || l.not {
		return right("it allows %s", c.Interface)
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
		return right("it allows %s, and as prefixes also %s", c.Interface, strings.Join(others, ", "))
	}
	return right("it allows %s", c.Interface)
}

// plain sets the interface of a library that accepts only plain names.
func (p *planner) plain(name, library string) {
	c := &p.Choice
	v, set := p.given(name)
	if !set || v.Value == "" {
		if why := p.inexpressible(); why != "" {
			p.env.warn("%s is not set: %s", name, why)
			return
		}
		p.set(name, c.Interface, "%s takes plain names, no = or ^", library)
		if c.Family == netif.IPv6 {
			p.env.note("%s takes the first address of %s, whatever its family: one that also has IPv4 may use that", library, c.Interface)
		}
		return
	}
	switch {
	case strings.HasPrefix(v.Value, "^") || strings.HasPrefix(v.Value, "="):
		p.keep(v, wrong("%s knows plain names only, and will not find an interface of this name", library))
	case !slices.Contains(strings.Split(v.Value, ","), c.Interface):
		p.keep(v, wrong("it does not name %s (%s), which was chosen: %s", c.Interface, c.Addr, c.Why))
	default:
		p.keep(v, right("it names %s", c.Interface))
	}
}

// family makes NCCL use the IPv6 address of an interface that also has IPv4.
func (p *planner) family() {
	want := "AF_INET"
	if p.Choice.Family == netif.IPv6 {
		want = "AF_INET6"
	}
	v, set := p.given(ncclFamily)
	switch {
	case set && v.Value == want:
		p.keep(v, right("it is the family of %s", p.Choice.Addr))
	case set && v.Value != "":
		p.keep(v, wrong("%s, which was chosen, is %s", p.Choice.Addr, want))
	case want == "AF_INET6":
		p.set(ncclFamily, want, "%s is IPv6, and NCCL takes IPv4 first", p.Choice.Addr)
	}
}

// inexpressible explains why an interface's name does not select the chosen address.
func (p *planner) inexpressible() string {
	c := &p.Choice
	switch {
	case c.Shadowed:
		return fmt.Sprintf("the name %s leads to its first address, and not to %s; give %s an interface of its own, such as a dummy one", c.Interface, c.Addr, c.Addr)
	case strings.Contains(c.Interface, ","):
		return fmt.Sprintf("the name %q has a comma, which separates names there", c.Interface)
	case strings.Contains(c.Interface, ":"):
		return fmt.Sprintf("%q is an alias of %q, and what follows the colon is a port there: give %s an interface of its own", c.Interface, before(c.Interface, ":"), c.Addr)
	}
	return ""
}

func before(s, separator string) string {
	s, _, _ = strings.Cut(s, separator)
	return s
}
