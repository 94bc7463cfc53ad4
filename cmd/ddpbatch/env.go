package main

import (
	"context"
	"net/netip"

	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
)

type envCmd struct {
	Peer      []netip.Addr `placeholder:"ADDR" help:"Address of another host of the job, to choose the network by; may be repeated."`
	Interface string       `default:"auto" placeholder:"NAME" help:"Use this interface, as network.interface in a job file."`
}

func (c *envCmd) Help() string {
	return `For programs that srun starts without ddpbatch:

    srun sh -c 'v=$(ddpbatch env) && eval "$v" && exec python3 train.py'

The variables of NCCL and Gloo are among them on a single host, or with --peer.
MASTER_ADDR and MASTER_PORT are not: "ddpbatch launch" agrees on these for all ranks.`
}

func (c *envCmd) Run(ctx context.Context, p *program) error {
	place, err := launch.FindPlace(p.lookup)
	if err != nil {
		return err
	}
	p.printf("export RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d GROUP_RANK=%d\n",
		place.Rank, place.WorldSize, place.LocalRank, place.LocalWorldSize, place.NodeRank)
	if place.Nodes > 1 && len(c.Peer) == 0 {
		return nil
	}
	inventory, err := netif.Collect(ctx, netif.CollectOptions{})
	if err != nil {
		return err
	}
	choice, err := netif.Choose(inventory, c.Peer, netif.Request{Interface: c.Interface})
	if err != nil {
		return err
	}
	vars, notes := p.networkVariables(choice)
	for _, v := range vars {
		p.printf("export %s=%s\n", v.Name, shellQuote(v.Value))
	}
	for _, n := range append(choice.Warnings, notes...) {
		p.note("%s", n)
	}
	return nil
}

// networkVariables are those that make NCCL and Gloo take the chosen interface,
// beside what this environment and the site have set.
func (p *program) networkVariables(choice netif.Choice) ([]nccl.Var, []string) {
	site, err := nccl.ReadConf("", p.lookup)
	if err != nil {
		p.note("%v", err)
	}
	return nccl.Environment(choice, p.lookup, site...)
}
