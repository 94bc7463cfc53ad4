package probe

import (
	"fmt"
	"slices"
	"strings"
)

// A Cause names a network problem.
type Cause string

// The possible causes.
const (
	MTUMismatch      Cause = "mtu mismatch"        // large packets are lost on the path
	AsymmetricRoute  Cause = "asymmetric route"    // packets do not leave or do not arrive by the chosen interface
	Firewall         Cause = "firewall"            // something rejects or drops packets that should pass
	NoCommonNetwork  Cause = "no common network"   // wrong subnet, no route, or not the same switch or VLAN
	DuplicateAddress Cause = "duplicate address"   // another host has the same address
	InterfaceDown    Cause = "interface down"      // or the interface is gone, or its address or MTU changed
	Translation      Cause = "address translation" // the peer sees a different source address
	Silence          Cause = "silence"             // no packet arrives in either direction, without an error
	Loss             Cause = "packet loss"         // large messages fail, but not because of packet size
	Unexplained      Cause = "unexplained"         // the evidence fits no other cause
)

// A Level is the severity of a finding for a job.
type Level int

// The levels, in increasing severity.
const (
	// Doubtful works, but may be slow or unreliable.
	Doubtful Level = iota + 1
	// Unbound fails for programs that do not bind their sockets to the chosen address before
	// they connect, such as programs that use NCCL over TCP.
	Unbound
	// Broken fails for all programs.
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

// A Finding is one cause between two hosts.
type Finding struct {
	Cause Cause
	Level Level
	From  Endpoint // the host that probably causes the problem, if it is only one
	To    Endpoint // other host; may equal From
	text  string
	hint  string
}

// Error describes the problem in one line, with both hosts, their interfaces, and their
// addresses.
func (f Finding) Error() string { return string(f.Cause) + ": " + f.text }

// Hint returns the fix, or a question for the administrator, in one line.
func (f Finding) Hint() string { return f.hint }

// A Failure is the error that [Error] returns.
type Failure struct {
	Findings []Finding // at least one, the worst first
}

// Error returns the findings at or above a level as one error, or nil without such findings. A job
// whose programs bind their sockets fails at [Broken]; other jobs fail at [Unbound].
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

// maxPairs limits how many pairs of hosts a message names, so that messages about large jobs
// stay short.
const maxPairs = 3

// Error returns the first finding in full, then the hosts of the others, and the host that is
// part of all findings.
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
	if len(pairs) > maxPairs {
		more = fmt.Sprintf(" and %d more", len(pairs)-maxPairs)
		pairs = pairs[:maxPairs]
	}
	text += "; the network also fails between " + strings.Join(pairs, ", ") + more
	if host := f.commonHost(); host != "" {
		text += "; " + host + " is part of all failures"
	}
	return text
}

// Hint returns the hint of the first finding.
func (f *Failure) Hint() string { return f.Findings[0].Hint() }

// Unwrap returns the findings, for errors.As.
func (f *Failure) Unwrap() []error {
	errs := make([]error, len(f.Findings))
	for i, x := range f.Findings {
		errs[i] = x
	}
	return errs
}

// commonHost returns the only host that is part of all findings, or "".
func (f *Failure) commonHost() string {
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

// sortFindings sorts findings by severity, the worst first, and retains the order of hosts.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return int(b.Level) - int(a.Level) })
}
