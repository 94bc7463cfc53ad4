package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/attach"
	"github.com/ddpbatch/ddpbatch/jobs/inspect"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type stacksCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	All   bool   `help:"Print the stack of every rank (default: one per group)."`
	JSON  bool   `help:"Print one JSON object per rank."`
	Here  bool   `hidden:"" help:"Print the ranks of the run on this node only."`
	Find  bool   `hidden:"" help:"With --here, do not read what the ranks are doing."`
}

func (c *stacksCmd) Help() string {
	return `Groups the ranks by the function in which their main thread is. In a hang, the rank that
differs from the others is usually the cause. Stacks of Python programs need py-spy
(pip install py-spy) in the program's environment, or a program that registers Python's
faulthandler (docs/hangs.md). Without both, the state of each process is shown.`
}

// Run prints the groups of ranks.
func (c *stacksCmd) Run(ctx context.Context, p *program) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	if c.Here { // Which is the ID of the run
		ranks, err := inspect.Search{RunID: c.Which, Env: p.Env, FindOnly: c.Find}.OnHost(ctx)
		if err != nil {
			return err
		}
		return p.printRanksJSON(ranks)
	}
	run, err := attach.Find(p.runStore(), c.Which)
	if err != nil {
		return err
	}
	ranks, err := run.FindRanks(ctx, false)
	if err != nil && len(ranks) == 0 {
		return err
	}
	if err != nil {
		p.note("warning: not all nodes answered: %v", err)
	}
	if len(ranks) == 0 {
		return hints.Errorf("`ddpbatch status "+shellQuote(c.Which)+"` shows what the run is doing", "no process of a rank of %q was found", run.Dir.Path)
	}
	if c.JSON {
		return p.printRanksJSON(ranks)
	}
	p.printStacks(ranks, c.All)
	return nil
}

func (p *program) printRanksJSON(ranks []inspect.Rank) error {
	for _, r := range ranks {
		if err := p.printJSONLine(r); err != nil {
			return err
		}
	}
	return nil
}

// printStacks prints the ranks in groups that do the same, the smallest group last, next to the
// prompt.
func (p *program) printStacks(ranks []inspect.Rank, all bool) {
	for _, g := range inspect.GroupRanks(ranks) {
		group, k := g.Ranks, g.Doing
		where := format.Count(len(group), "rank") + " (" + inspect.FormatRanks(group) + ")"
		if len(group) == 1 {
			where = fmt.Sprintf("rank %d on %s, process %d", group[0].Rank, group[0].Host, group[0].PID)
		}
		fmt.Fprintf(p.Stdout, "%s: %s\n", printable.Line(where), printable.Line(k))
		for i, r := range group {
			if i > 0 && !all {
				break
			}
			if all && len(group) > 1 {
				fmt.Fprintf(p.Stdout, "  rank %d on %s, process %d\n", r.Rank, printable.Line(r.Host), r.PID)
			}
			for line := range strings.Lines(r.Stack) {
				fmt.Fprintf(p.Stdout, "    %s\n", printable.Line(strings.TrimRight(line, "\n")))
			}
		}
	}
	if i := slices.IndexFunc(ranks, func(r inspect.Rank) bool { return r.RAS != "" }); i >= 0 && all {
		fmt.Fprintf(p.Stdout, "NCCL RAS, from rank %d on %s:\n", ranks[i].Rank, printable.Line(ranks[i].Host))
		for line := range strings.Lines(ranks[i].RAS) {
			fmt.Fprintf(p.Stdout, "    %s\n", printable.Line(strings.TrimRight(line, "\n")))
		}
	}
	for _, r := range ranks {
		if r.Reason != "" {
			p.note("rank %d on %s has no stack: %s", r.Rank, r.Host, printable.Line(r.Reason))
			break
		}
	}
}

type execCmd struct {
	Which   string   `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	Rank    *int     `placeholder:"N" help:"Run the command on the node of rank N, with its RANK, LOCAL_RANK, and GPUs (default: the first node)."`
	Node    string   `placeholder:"NAME" help:"Run the command on this node."`
	All     bool     `help:"Run the command once on each node. Each line of output starts with the index of the node."`
	Command []string `arg:"" passthrough:"" name:"command" help:"Command and arguments, after --."`
}

func (c *execCmd) Help() string {
	return `For example, ddpbatch exec mine --all -- nvidia-smi. On a cluster, the command runs as a
step of the job (srun --overlap) and shares its cores, memory, and GPUs. It does not
delay the end of the job.

With --rank, the command also gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
GROUP_RANK, and the visible GPUs of this rank, and its process ID in DDPBATCH_RANK_PID.
MASTER_ADDR and MASTER_PORT stay unset, so the command cannot join the ranks.`
}

// Run replaces this process by the command, or by srun.
func (c *execCmd) Run(ctx context.Context, p *program) error {
	argv, err := commandToRun(c.Command, "ddpbatch exec "+c.Which+" -- nvidia-smi")
	if err != nil {
		return err
	}
	target, err := p.chooseNodes(ctx, c.Which, c.Rank, c.Node, c.All)
	if err != nil {
		return err
	}
	if argv, err = target.CommandLine(c.All, argv...); err != nil {
		return err
	}
	return p.replaceBy(argv)
}

// commandToRun returns the words after a leading --. Without any, the error shows the example.
func commandToRun(words []string, example string) ([]string, error) {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, usage("no command; for example, " + example)
	}
	return words, nil
}

type shellCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	Rank  *int   `placeholder:"N" help:"Open the shell on the node of rank N, with its RANK, LOCAL_RANK, and GPUs (default: the first node)."`
	Node  string `placeholder:"NAME" help:"Open the shell on this node."`
}

// Run replaces this process by the shell, or by srun.
func (c *shellCmd) Run(ctx context.Context, p *program) error {
	target, err := p.chooseNodes(ctx, c.Which, c.Rank, c.Node, false)
	if err != nil {
		return err
	}
	shell, _ := p.lookup("SHELL")
	argv, err := target.Interactive(cmp.Or(shell, "/bin/sh"), "-i")
	if err != nil {
		return err
	}
	return p.replaceBy(argv)
}

// chooseNodes returns the nodes that the flags select in a run whose job belongs to its owner.
func (p *program) chooseNodes(ctx context.Context, which string, rank *int, node string, all bool) (attach.Target, error) {
	run, err := attach.Find(p.runStore(), which)
	if err == nil {
		err = run.CheckJobOwner(ctx)
	}
	if err != nil {
		return attach.Target{}, err
	}
	switch {
	case rank != nil && node != "", all && (rank != nil || node != ""):
		return attach.Target{}, usage("--rank, --node, and --all exclude each other")
	case all:
		return run.Nodes(run.Hosts...), nil
	case node != "":
		if !slices.Contains(run.Hosts, node) {
			return attach.Target{}, usage(fmt.Sprintf("the run has no node %q: it runs on %s", node, run.Live.Hosts))
		}
		return run.Nodes(node), nil
	case rank != nil:
		target, ok, err := run.FindRank(ctx, *rank)
		if !ok && err == nil {
			err = usage(fmt.Sprintf("the run has no rank %d on %s", *rank, run.Live.Hosts))
		}
		return target, err
	}
	return run.Nodes(run.Hosts[0]), nil
}

// replaceBy replaces this process by a command.
func (p *program) replaceBy(argv []string) error {
	env := p.Env
	if argv[0] == "srun" {
		env, _ = slurm.Scrub(env)
	}
	path, err := environ.LookPath(env, argv[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("start %q: %w", path, syscall.Exec(path, argv, env))
}
