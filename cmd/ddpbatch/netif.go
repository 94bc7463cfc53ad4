package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
)

type netifCmd struct {
	Explain   bool         `help:"Say why each interface is chosen or not; this is the default."`
	JSON      bool         `help:"Print the choice as JSON, with the variables that NCCL and Gloo would get."`
	Dump      bool         `help:"Print this host's links, addresses, routes, rules, adapters, GPUs and NCCL's settings as JSON, for --inventory."`
	Inventory string       `placeholder:"FILE" help:"Choose from what --dump printed on another host, or from a list of such; - is standard input."`
	Case      string       `placeholder:"ID" help:"Of a list in --inventory, the entry with this id. Without it the answer is a JSON list, one for each."`
	Peer      []netip.Addr `placeholder:"ADDR" help:"Address of another host of the job; may be repeated. With --inventory, the peers in the file if none is given."`
	Interface string       `default:"auto" placeholder:"NAME" help:"Use this interface, as network.interface in a job file."`
	Family    string       `default:"auto" enum:"auto,ipv4,ipv6" placeholder:"FAMILY" help:"Version of IP: auto, ipv4 or ipv6."`
	Exclude   []string     `placeholder:"NAME" help:"Interface that must not be used; may be repeated."`
}

func (c *netifCmd) Help() string {
	return `The ranks of a job compare the networks of all their hosts. Here only one host is
known: name the address of another one with --peer. Without it the answer is for a
job on this host alone.

With --inventory the answer is for the host that the file is of: nothing of this
machine goes into it, its environment and its files of NCCL included.`
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
		return usage("--dump prints one host: name it with --case")
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
		p.note("this is for a job on one host; name an address of another host with --peer")
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
		return fmt.Errorf("no interface was chosen for %d of %d cases: %s", len(failed), len(cases), strings.Join(failed, ", "))
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
		facts.Conf = append(facts.Conf, nccl.Setting{Name: s.Name, Value: s.Value, File: s.File, Line: s.Line})
	}
	if c.Inventory == "" {
		facts.Lookup = p.lookup
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
			return nil, false, usage("--case needs a list in --inventory")
		}
		host, err := c.here(ctx, p)
		return []netif.Case{host}, false, err
	}
	from := io.Reader(p.Stdin)
	if c.Inventory != "-" {
		f, err := os.Open(p.abs(c.Inventory))
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
			fmt.Errorf("read inventory %q: it holds no host", c.Inventory), "write it with \"ddpbatch netif --dump\" on the host")}
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
		fmt.Errorf("read inventory %q: it has no case %q", c.Inventory, c.Case), "it has "+strings.Join(ids, ", "))}
}

// here returns this host as a case.
func (c *netifCmd) here(ctx context.Context, p *program) (netif.Case, error) {
	inventory, err := netif.Collect(ctx, netif.CollectOptions{})
	if err != nil {
		return netif.Case{}, err
	}
	host := netif.Case{ID: inventory.Host, Source: "ddpbatch netif --dump", Inventory: inventory, Peers: append([]netip.Addr{}, c.Peer...)}
	conf, err := nccl.ReadConf("", p.lookup)
	if err != nil {
		p.note("%v", err) // NCCL also ignores a file that it cannot read
	}
	for _, s := range conf {
		host.Settings = append(host.Settings, netif.Setting{Name: s.Name, Value: s.Value, File: s.File, Line: s.Line})
	}
	return host, nil
}
