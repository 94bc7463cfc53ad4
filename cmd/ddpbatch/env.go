package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

type envCmd struct {
	Explain   bool         `xor:"form" help:"Print each variable with its source and the reason, instead of shell commands."`
	JSON      bool         `xor:"form" help:"Print the variables, sources, and reasons as JSON."`
	Peer      []netip.Addr `placeholder:"ADDR" help:"Address of another host of the job, used to select the network. Repeatable."`
	Interface string       `default:"auto" placeholder:"NAME" help:"Use this interface, like network.interface in a job file (default: ${default})."`
	Inventory string       `placeholder:"FILE" help:"Use the host in this output of \"ddpbatch netif --dump\", or - for standard input (default: this host)."`
	Site      string       `placeholder:"NAME" help:"Site profile, like site in a job file. Its variables take precedence over ddpbatch's."`
	NCCL      string       `name:"nccl" placeholder:"VERSION" help:"NCCL version of the program. Versions before 2.21 need NCCL_IB_GID_INDEX on RoCE networks."`
}

func (c *envCmd) Help() string {
	return `Use it for programs that srun starts without ddpbatch:

    srun sh -c 'v=$(ddpbatch env) && eval "$v" && exec python3 train.py'

On a single host, or with --peer, the output includes the variables for NCCL, Gloo,
UCX, and Open MPI. Existing values in the environment, the profile of --site, and
nccl.conf stay unchanged and take precedence in this order. --explain shows the
source of each value. With --inventory, the nccl.conf comes from the file, and the
environment from this machine.

Outside of a step, for example in an ssh session on a node, --explain with --peer or
--inventory prints only the network variables. MASTER_ADDR and MASTER_PORT are not
included: only "ddpbatch launch" can set them consistently on all ranks.`
}

// envAnswer is the output of env --json.
type envAnswer struct {
	Env       map[string]string `json:"env"` // variables that the program still has to set
	Variables []nccl.Var        `json:"variables"`
	Warnings  []string          `json:"warnings"`
	Notes     []string          `json:"notes"`
}

func (c *envCmd) Run(ctx context.Context, p *program) error {
	ranks, info, err := c.ranks(p)
	if err != nil {
		return err
	}
	env := nccl.Env{}
	if ranks == nil {
		p.note("this process is not a rank, so the variables of ranks are not included")
	}
	network := info.Nodes <= 1 || len(c.Peer) > 0
	if network {
		if env, err = c.network(ctx, p, info); err != nil {
			return err
		}
	}
	toSet := append(ranks, env.ToSet()...)
	env.Vars = append(ranks, env.Vars...)
	switch {
	case c.JSON:
		answer := envAnswer{map[string]string{}, env.Vars, append([]string{}, env.Warnings...), append([]string{}, env.Notes...)}
		for _, v := range toSet {
			answer.Env[v.Name] = v.Value
		}
		return p.printJSON(answer)
	case c.Explain:
		var rows [][]string
		for _, v := range env.Vars {
			rows = append(rows, []string{v.Name, quoteCell(v.Value), cmp.Or(v.From, string(v.Source)), v.Reason})
		}
		p.table([]string{"VARIABLE", "VALUE", "FROM", "REASON"}, rows)
		if !network {
			p.note("the network variables are not included: give an address of another host with --peer")
		}
	default:
		p.printf("export RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d GROUP_RANK=%d\n",
			info.Rank, info.WorldSize, info.LocalRank, info.LocalWorldSize, info.NodeRank)
		for _, v := range toSet[len(ranks):] {
			p.printf("export %s=%s\n", v.Name, shellQuote(v.Value))
		}
	}
	for _, w := range env.Warnings {
		p.note("warning: %s", w)
	}
	if c.Explain {
		for _, n := range env.Notes {
			p.note("%s", n)
		}
	}
	return nil
}

// quoteCell returns value as a table cell. It quotes values that the table would not show in
// full, such as a value that ends in a space or carriage return.
func quoteCell(value string) string {
	if value == "" || printable.Line(value) != value {
		return strconv.Quote(value)
	}
	return value
}

// ranks returns the variables for this rank. Outside of a step, it returns no variables for
// --explain with --peer, and for --explain or --json with --inventory. Otherwise, it returns
// an error there.
func (c *envCmd) ranks(p *program) ([]nccl.Var, launch.RankInfo, error) {
	info, err := launch.DetectRank(p.lookup, "")
	if err != nil {
		var outside *slurm.NoStepError
		here := c.Explain && len(c.Peer) > 0 && errors.As(err, &outside)
		if here || c.Inventory != "" && (c.Explain || c.JSON) {
			return nil, launch.RankInfo{LocalRank: -1}, nil
		}
		if c.Explain && errors.As(err, &outside) {
			err = hints.Add(err, "without srun, give an address of another host of the job with --peer")
		}
		return nil, info, err
	}
	var vars []nccl.Var
	for _, v := range []struct {
		name   string
		number int
		reason string
	}{
		{"RANK", info.Rank, "rank of this process"},
		{"WORLD_SIZE", info.WorldSize, "number of ranks"},
		{"LOCAL_RANK", info.LocalRank, "local rank of this process"},
		{"LOCAL_WORLD_SIZE", info.LocalWorldSize, "number of ranks on this host"},
		{"GROUP_RANK", info.NodeRank, "node rank of this host"},
	} {
		vars = append(vars, nccl.Var{Name: v.name, Value: strconv.Itoa(v.number), Source: nccl.Planned, Reason: v.reason})
	}
	return vars, info, nil
}

// network returns the variables for the selected network.
func (c *envCmd) network(ctx context.Context, p *program, info launch.RankInfo) (nccl.Env, error) {
	facts := nccl.Facts{LocalRank: info.LocalRank}
	if c.NCCL != "" {
		version, err := nccl.ParseVersion(c.NCCL)
		if err != nil {
			return nccl.Env{}, usage(fmt.Sprintf("--nccl: %v", err))
		}
		facts.Version = version
	}
	if c.Site != "" {
		if sites.IsPath(c.Site) && !filepath.IsAbs(c.Site) {
			if err := p.checkFallbackDir(true, c.Site); err != nil {
				return nccl.Env{}, err
			}
		}
		site, err := p.finder().Find(c.Site, p.Dir)
		if err != nil {
			return nccl.Env{}, err
		}
		facts.Site = nccl.Profile{Name: site.Name(), Vars: map[string]string{}}
		for name, value := range site.Env {
			facts.Site.Vars[string(name)] = string(value)
		}
		facts.Exclude = jobs.Strings(site.Network.Exclude)
	}
	host, err := c.host(ctx, p)
	if err != nil {
		return nccl.Env{}, err
	}
	facts.Inventory, facts.Lookup = host.Inventory, p.lookup
	if c.Inventory == "" {
		facts.FileExists = nccl.FileExists
	}
	for _, s := range host.Settings {
		facts.Conf = append(facts.Conf, nccl.Setting(s))
	}
	peers := c.Peer
	if len(peers) == 0 {
		peers = host.Peers
	}
	facts.Choice, err = netif.Choose(host.Inventory, peers, netif.Request{Interface: c.Interface, Exclude: facts.Exclude})
	if err != nil {
		return nccl.Env{}, err
	}
	env := nccl.Plan(facts)
	env.Warnings = append(append([]string{}, facts.Choice.Warnings...), env.Warnings...)
	return env, nil
}

// host returns this host, or the host in --inventory, with the settings of its nccl.conf.
func (c *envCmd) host(ctx context.Context, p *program) (netif.Case, error) {
	cases, isList, err := (&netifCmd{Inventory: c.Inventory, Peer: c.Peer}).cases(ctx, p)
	switch {
	case err != nil:
		return netif.Case{}, err
	case isList:
		return netif.Case{}, exitError{exitUsage, fmt.Errorf("read inventory %q: a list of hosts, want a single host", c.Inventory)}
	}
	return cases[0], nil
}
