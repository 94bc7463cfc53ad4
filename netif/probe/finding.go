package probe

import (
	"fmt"
	"slices"
	"strings"
)

// Cause names what is wrong with a network.
type Cause string

// The causes.
const (
	MTUMismatch      Cause = "mtu mismatch"        // large packets are lost on the way
	AsymmetricRoute  Cause = "asymmetric route"    // packets do not go, or do not come, by the chosen interface
	Firewall         Cause = "firewall"            // something refuses or drops what it should pass
	NoCommonNetwork  Cause = "no common network"   // wrong subnet, no route, or not the same switch or VLAN
	DuplicateAddress Cause = "duplicate address"   // another host has it too
	InterfaceDown    Cause = "interface down"      // or it, its address or its MTU have changed since the choice
	Translation      Cause = "address translation" // the peer sees another address than the host has
	Silence          Cause = "silence"             // no packet arrives either way, and nothing says why
	Loss             Cause = "packet loss"         // small messages pass, large ones do not, and not for their packets' size
	Unexplained      Cause = "unexplained"         // what was seen fits no other cause
)

// Level is what a finding means for a job.
type Level int

// The levels, the worst last.
const (
	// Doubtful works, but not as it should.
	Doubtful Level = iota + 1
	// Unbound fails for programs that do not bind their sockets to the chosen
	// address before they connect, such as those that use NCCL over TCP.
	Unbound
	// Broken fails for all.
	Broken
)

func (l Level) String() string {
	switch l {
	case Doubtful:
		return "doubtful"
	case Unbound:
		return "broken for programs that do not bind their sockets"
	case Broken:
		return "broken"
	}
	return fmt.Sprintf("level %d", int(l))
}

// Finding is one cause between two hosts.
type Finding struct {
	Cause Cause
	Level Level
	From  Endpoint // the host to look at first, where one is to blame
	To    Endpoint // the other one; may be the same
	text  string
	hint  string
}

// Error says what is wrong in one line. It names both hosts with their interfaces
// and addresses.
func (f Finding) Error() string { return string(f.Cause) + ": " + f.text }

// Hint says in one line what to do, or what to ask the administrator.
func (f Finding) Hint() string { return f.hint }

// Failure is what Error returns.
type Failure struct {
	Findings []Finding // at least one, the worst first
}

// Error returns the findings of at least a level as one error, and nil if there
// is none. A job whose programs bind their sockets fails at [Broken], others at
// [Unbound].
func Error(findings []Finding, least Level) error {
	var f Failure
	for _, x := range findings {
		if x.Level >= least {
			f.Findings = append(f.Findings, x)
		}
	}
	if len(f.Findings) == 0 {
		return nil
	}
	return &f
}

// fewPairs is how many pairs of hosts a message names: one about a thousand
// hosts must stay a message.
const fewPairs = 3

// Error gives the first finding in full, then the hosts of the others, and the
// host that all of them have in common.
func (f *Failure) Error() string {
	first := f.Findings[0]
	text := first.Error()
	if len(f.Findings) == 1 {
		return text
	}
	var pairs []string
	for _, x := range f.Findings[1:] {
		pair := x.From.Host + " and " + x.To.Host
		if x.From.ID == x.To.ID {
			pair = x.From.Host
		}
		if x.Cause != first.Cause {
			pair += " (" + string(x.Cause) + ")"
		}
		pairs = append(pairs, pair)
	}
	more := ""
	if len(pairs) > fewPairs {
		more = fmt.Sprintf(" and %d more", len(pairs)-fewPairs)
		pairs = pairs[:fewPairs]
	}
	text += "; the network also fails between " + strings.Join(pairs, ", ") + more
	if host := f.common(); host != "" {
		text += "; " + host + " is in all of them"
	}
	return text
}

// Hint is what to do about the first finding.
func (f *Failure) Hint() string { return f.Findings[0].Hint() }

// Unwrap gives the findings to errors.As.
func (f *Failure) Unwrap() []error {
	errs := make([]error, len(f.Findings))
	for i, x := range f.Findings {
		errs[i] = x
	}
	return errs
}

// common is the one host that has a part in all findings, if there is one.
func (f *Failure) common() string {
	hosts := map[string]int{}
	for _, x := range f.Findings {
		hosts[x.From.Host]++
		if x.To.ID != x.From.ID {
			hosts[x.To.Host]++
		}
	}
	var all []string
	for host, n := range hosts {
		if n == len(f.Findings) {
			all = append(all, host)
		}
	}
	if len(all) != 1 {
		return ""
	}
	return all[0]
}

// sortFindings puts the worst first and keeps the order of the hosts else.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return int(b.Level) - int(a.Level) })
}
