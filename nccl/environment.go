package nccl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Var is one environment variable.
type Var struct {
	Name  string
	Value string
}

// The variables that name a network interface, and NCCL's for the family
// (NCCL User Guide, "Environment Variables"; PyTorch, torch.distributed,
// "Choosing the network interface to use").
const (
	ncclInterface = "NCCL_SOCKET_IFNAME"
	ncclFamily    = "NCCL_SOCKET_FAMILY"
	ncclCommID    = "NCCL_COMM_ID"
	glooInterface = "GLOO_SOCKET_IFNAME"
	tpInterface   = "TP_SOCKET_IFNAME"
)

// Environment returns the variables that make NCCL, Gloo and TensorPipe use the
// interface of a choice on this host; they differ between hosts. A variable that
// lookup or site has already is left alone and not returned. The notes, one
// sentence each, say what was kept and where it comes from, whether it
// contradicts the choice, and what could not be expressed.
//
// lookup is the environment of the ranks; site is what [ReadConf] found.
func Environment(c netif.Choice, lookup func(string) (string, bool), site ...Setting) (vars []Var, notes []string) {
	e := environment{choice: c, lookup: lookup, site: site}
	e.nccl()
	e.plain(glooInterface, "Gloo")
	e.plain(tpInterface, "TensorPipe")
	e.family()
	if value, from, set := e.given(ncclCommID); set {
		e.note("%s=%q (%s) makes NCCL ignore %s when it starts and fail where hosts do not share a subnet: unset it", ncclCommID, value, from, ncclInterface)
	}
	return e.vars, e.notes
}

type environment struct {
	choice netif.Choice
	lookup func(string) (string, bool)
	site   []Setting
	vars   []Var
	notes  []string
}

func (e *environment) set(name, value string) { e.vars = append(e.vars, Var{name, value}) }

func (e *environment) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// given finds what a variable is set to already. NCCL reads files of its own,
// but the environment goes first; Gloo and TensorPipe know only the environment.
func (e *environment) given(name string) (value, from string, set bool) {
	if value, set := e.lookup(name); set {
		return value, "from the environment", true
	}
	if !strings.HasPrefix(name, "NCCL_") {
		return "", "", false
	}
	i := slices.IndexFunc(e.site, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return "", "", false
	}
	return e.site[i].Value, "from " + e.site[i].From(), true
}

// nccl names the interface to NCCL.
func (e *environment) nccl() {
	c := &e.choice
	value, from, set := e.given(ncclInterface)
	if set && len(value) > 1 {
		verdict := fmt.Sprintf("it allows %s", c.Interface)
		if !allows(value, c.Interface) {
			verdict = fmt.Sprintf("but it does not allow %s (%s), which was chosen: %s", c.Interface, c.Addr, c.Why)
		}
		e.note("%s=%q (%s) is kept; %s", ncclInterface, value, from, verdict)
		return
	}
	if set {
		e.note("%s=%q (%s) is replaced: NCCL ignores a value this short", ncclInterface, value, from)
	}
	switch why := e.inexpressible(); {
	case why != "":
		e.note("%s is not set: %s", ncclInterface, why)
	case c.Addr.IsLoopback() && c.Addr.Is6():
		e.note("%s is not set: NCCL does not use the IPv6 loopback", ncclInterface)
	default:
		// Without "=" a name is a prefix, and eth1 takes eth10 too.
		e.set(ncclInterface, "="+c.Interface)
	}
}

// plain names the interface to a library that takes names as they are.
func (e *environment) plain(name, library string) {
	c := &e.choice
	value, from, set := e.given(name)
	if !set || value == "" {
		if why := e.inexpressible(); why != "" {
			e.note("%s is not set: %s", name, why)
			return
		}
		e.set(name, c.Interface)
		if c.Family == netif.IPv6 {
			e.note("%s takes the first address of %s, whatever its family: one that also has IPv4 may use that", library, c.Interface)
		}
		return
	}
	verdict := fmt.Sprintf("it names %s", c.Interface)
	switch {
	case strings.HasPrefix(value, "^") || strings.HasPrefix(value, "="):
		verdict = fmt.Sprintf("but %s knows plain names only, and will not find an interface of this name", library)
	case !slices.Contains(strings.Split(value, ","), c.Interface):
		verdict = fmt.Sprintf("but it does not name %s (%s), which was chosen: %s", c.Interface, c.Addr, c.Why)
	}
	e.note("%s=%q (%s) is kept; %s", name, value, from, verdict)
}

// family tells NCCL to take the IPv6 address of an interface that also has IPv4.
func (e *environment) family() {
	want := "AF_INET"
	if e.choice.Family == netif.IPv6 {
		want = "AF_INET6"
	}
	value, from, set := e.given(ncclFamily)
	switch {
	case set && value == want:
		e.note("%s=%q (%s) is kept; it is the family of %s", ncclFamily, value, from, e.choice.Addr)
	case set && value != "":
		e.note("%s=%q (%s) is kept; but %s, which was chosen, is %s", ncclFamily, value, from, e.choice.Addr, want)
	case want == "AF_INET6":
		e.set(ncclFamily, want)
	}
}

// inexpressible says why an interface's name does not lead to the chosen address.
func (e *environment) inexpressible() string {
	c := &e.choice
	switch {
	case c.Shadowed:
		return fmt.Sprintf("the name %s leads to its first address, and not to %s; give %s an interface of its own, such as a dummy one", c.Interface, c.Addr, c.Addr)
	case strings.Contains(c.Interface, ","):
		return fmt.Sprintf("the name %q has a comma, which separates names there", c.Interface)
	}
	return ""
}
