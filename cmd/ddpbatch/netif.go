package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/ddpbatch/ddpbatch/netif"
)

type netifCmd struct {
	Explain   bool         `help:"Say why each interface is chosen or not; this is the default."`
	JSON      bool         `help:"Print the choice as JSON, with the variables that NCCL and Gloo would get."`
	Dump      bool         `help:"Print this host's links, addresses and routes as JSON, for --inventory."`
	Inventory string       `placeholder:"FILE" help:"Choose from what --dump printed on another host; - is standard input."`
	Peer      []netip.Addr `placeholder:"ADDR" help:"Address of another host of the job; may be repeated."`
	Interface string       `default:"auto" placeholder:"NAME" help:"Use this interface, as network.interface in a job file."`
	Family    string       `default:"auto" enum:"auto,ipv4,ipv6" placeholder:"FAMILY" help:"Version of IP: auto, ipv4 or ipv6."`
	Exclude   []string     `placeholder:"NAME" help:"Interface that must not be used; may be repeated."`
}

func (c *netifCmd) Help() string {
	return `The ranks of a job compare the networks of all their hosts. Here only one host is
known: name the address of another one with --peer. Without it the answer is for a
job on this host alone.`
}

// netifAnswer is what --json prints.
type netifAnswer struct {
	netif.Choice
	Env   map[string]string `json:"env"`
	Notes []string          `json:"notes"`
}

func (c *netifCmd) Run(ctx context.Context, p *program) error {
	inventory, err := c.inventory(ctx, p)
	if err != nil {
		return err
	}
	if c.Dump {
		return p.printJSON(inventory)
	}
	choice, err := netif.Choose(inventory, c.Peer, netif.Request{Interface: c.Interface, Family: netif.Family(c.Family), Exclude: c.Exclude})
	if err != nil {
		return err
	}
	if len(c.Peer) == 0 {
		p.note("this is for a job on one host; name an address of another host with --peer")
	}
	if !c.JSON {
		return choice.Explain(p.Stdout)
	}
	a := netifAnswer{Choice: choice, Env: map[string]string{}}
	vars, notes := p.networkVariables(choice)
	for _, v := range vars {
		a.Env[v.Name] = v.Value
	}
	a.Notes = append([]string{}, notes...)
	return p.printJSON(a)
}

func (c *netifCmd) inventory(ctx context.Context, p *program) (netif.Inventory, error) {
	var from io.Reader
	switch c.Inventory {
	case "":
		return netif.Collect(ctx, netif.CollectOptions{})
	case "-":
		from = p.Stdin
	default:
		f, err := os.Open(p.abs(c.Inventory))
		if err != nil {
			return netif.Inventory{}, exitError{exitUsage, err}
		}
		defer f.Close()
		from = f
	}
	inventory, err := netif.ReadInventory(from)
	if err != nil {
		return inventory, exitError{exitUsage, fmt.Errorf("read inventory %q: %w", c.Inventory, err)}
	}
	return inventory, nil
}
