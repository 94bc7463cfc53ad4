package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
)

type netifCmd struct {
	Explain   bool         `help:"Explain for each interface why it is selected or rejected (default)."`
	JSON      bool         `help:"Print the selection as JSON, with the variables for NCCL and Gloo."`
	Dump      bool         `help:"Print the links, addresses, routes, rules, RDMA adapters, GPUs, and NCCL settings of this host as JSON, for --inventory."`
	Inventory string       `placeholder:"FILE" help:"Use the output of --dump from a different host, or a list of such outputs; - is standard input."`
	Case      string       `placeholder:"ID" help:"ID of an entry of a list in --inventory (default: all entries, as a JSON list)."`
	Peer      []netip.Addr `placeholder:"ADDR" help:"Address of another host of the job. Repeatable (default with --inventory: the peers in the file)."`
	Interface string       `default:"auto" placeholder:"NAME" help:"Use this interface, like network.interface in a job file (default: ${default})."`
	Family    string       `default:"auto" enum:"auto,ipv4,ipv6" placeholder:"FAMILY" help:"IP version: auto, ipv4, or ipv6 (default: ${default})."`
	Exclude   []string     `placeholder:"NAME" help:"Interface to exclude. Repeatable."`
}

func (c *netifCmd) Help() string {
	return `The ranks of a job compare the networks of all their hosts. This command has only the
data of this host: give the address of another host with --peer. Without it, the
result is for a job on a single host.

With --inventory, the result is for the host in the file. It ignores the environment
and the NCCL configuration of this machine.`
}

// netifAnswer is the output of netif --json for one host.
type netifAnswer struct {
	netif.Choice
	Env   map[string]string `json:"env"`
	Notes []string          `json:"notes"`
}

// caseAnswer is the answer or the error for one of several hosts.
type caseAnswer struct {
	ID string `json:"id"`
	*netifAnswer
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

func (c *netifCmd) Run(ctx context.Context, p *program) error {
	cases, isList, err := c.cases(ctx, p)
	if err != nil {
		return err
	}
	if isList && c.Dump {
		return usage("--dump prints a single host: select it with --case")
	}
	if isList {
		return c.answerAll(p, cases)
	}
	host := &cases[0]
	if c.Dump {
		return p.printJSON(host)
	}
	choice, err := c.choose(host)
	if err != nil {
		return err
	}
	if len(c.peers(host)) == 0 {
		p.note("this result is for a job on a single host; for several hosts, give an address of another host with --peer")
	}
	if !c.JSON {
		return choice.Explain(p.Stdout)
	}
	return p.printJSON(c.answer(p, host, choice))
}

// answerAll prints the answers for all cases. It returns an error with the IDs of the cases
// that have no usable interface.
func (c *netifCmd) answerAll(p *program, cases []netif.Case) error {
	answers := make([]caseAnswer, len(cases))
	var failed []string
	for i := range cases {
		a := &answers[i]
		a.ID = cases[i].ID
		choice, err := c.choose(&cases[i])
		if err != nil {
			a.Error, a.Hint = err.Error(), hints.Of(err)
			failed = append(failed, fmt.Sprintf("%q", a.ID))
			continue
		}
		answer := c.answer(p, &cases[i], choice)
		a.netifAnswer = &answer
	}
	if err := p.printJSON(answers); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("no usable interface for %d of %d cases: %s", len(failed), len(cases), strings.Join(failed, ", "))
	}
	return nil
}

func (c *netifCmd) choose(host *netif.Case) (netif.Choice, error) {
	return netif.Choose(host.Inventory, c.peers(host), netif.Request{Interface: c.Interface, Family: netif.Family(c.Family), Exclude: c.Exclude})
}

// peers returns the addresses in --peer, or else the peers in the file.
func (c *netifCmd) peers(host *netif.Case) []netip.Addr {
	if len(c.Peer) > 0 {
		return c.Peer
	}
	return host.Peers
}

// answer adds the environment variables that all ranks of the host share.
func (c *netifCmd) answer(p *program, host *netif.Case, choice netif.Choice) netifAnswer {
	facts := nccl.Facts{Choice: choice, Inventory: host.Inventory, Exclude: c.Exclude, LocalRank: -1}
	for _, s := range host.Settings {
		facts.Conf = append(facts.Conf, nccl.Setting(s))
	}
	if c.Inventory == "" {
		facts.Lookup, facts.FileExists = p.lookup, nccl.FileExists
	}
	env := nccl.Plan(facts)
	a := netifAnswer{Choice: choice, Env: map[string]string{}, Notes: append([]string{}, env.Notes...)}
	for _, v := range env.ToSet() {
		a.Env[v.Name] = v.Value
	}
	a.Warnings = append(a.Warnings, env.Warnings...)
	return a
}

// cases returns this host, or the hosts in --inventory. With --case, it returns only that
// entry of the file. It reports whether the result is a list, which can have several entries.
func (c *netifCmd) cases(ctx context.Context, p *program) ([]netif.Case, bool, error) {
	if c.Inventory == "" {
		if c.Case != "" {
			return nil, false, usage("--case requires a list in --inventory")
		}
		host, err := c.collectHost(ctx, p)
		return []netif.Case{host}, false, err
	}
	from := io.Reader(p.Stdin)
	if c.Inventory != "-" {
		f, err := safefile.OpenNamed(p.abs(c.Inventory))
		if err != nil {
			return nil, false, exitError{exitUsage, err}
		}
		defer f.Close()
		from = f
	}
	cases, isList, err := netif.ReadCases(from)
	if err != nil {
		return nil, false, exitError{exitUsage, fmt.Errorf("read inventory %q: %w", c.Inventory, err)}
	}
	if len(cases) == 0 || !isList && len(cases[0].Links) == 0 && cases[0].Host == "" {
		return nil, false, exitError{exitUsage, hints.Add(
			fmt.Errorf("read inventory %q: no host in it", c.Inventory), "write it with `ddpbatch netif --dump` on the host")}
	}
	if c.Case == "" {
		return cases, isList, nil
	}
	ids := make([]string, len(cases))
	for i := range cases {
		if cases[i].ID == c.Case {
			return cases[i : i+1], false, nil
		}
		ids[i] = cases[i].ID
	}
	return nil, false, exitError{exitUsage, hints.Add(
		fmt.Errorf("read inventory %q: no case %q", c.Inventory, c.Case), "use one of "+strings.Join(ids, ", "))}
}

// collectHost returns this host as a case.
func (c *netifCmd) collectHost(ctx context.Context, p *program) (netif.Case, error) {
	inventory, err := netif.Collect(ctx)
	if err != nil {
		return netif.Case{}, err
	}
	host := netif.Case{ID: inventory.Host, Source: "ddpbatch netif --dump", Inventory: inventory, Peers: append([]netip.Addr{}, c.Peer...)}
	conf, err := nccl.ReadConf("", p.lookup)
	if err != nil {
		p.note("%v", err) // NCCL also ignores a file that it cannot read
	}
	for _, s := range conf {
		host.Settings = append(host.Settings, netif.Setting(s))
	}
	return host, nil
}
