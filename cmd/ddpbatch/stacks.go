package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/inspect"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type stacksCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	All   bool   `help:"Print the stack of every rank (default: one per group)."`
	JSON  bool   `help:"Print one JSON object per rank."`
	Here  bool   `hidden:"" help:"Print the ranks of the run on this node only."`
}

// Help returns the detailed help.
func (c *stacksCmd) Help() string {
	return `Groups the ranks by the function in which their main thread is. In a hang, the rank that
differs from the others is usually the cause. Stacks of Python programs need py-spy
(pip install py-spy) in the program's environment. Without it, the state of each process
is shown.`
}

// Run prints the groups of ranks.
func (c *stacksCmd) Run(ctx context.Context, p *program) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	if c.Here { // Which is the ID of the run
		ranks, err := inspect.Collect(ctx, c.Which, p.Env)
		if err != nil {
			return err
		}
		return p.printRanksJSON(ranks)
	}
	target, err := p.findActive(c.Which)
	if err != nil {
		return err
	}
	ranks, err := p.collectRanks(ctx, target)
	if err != nil && len(ranks) == 0 {
		return err
	}
	if err != nil {
		p.note("warning: not all nodes answered: %v", err)
	}
	if len(ranks) == 0 {
		return hints.Errorf("`ddpbatch status "+c.Which+"` shows what the run is doing", "no process of a rank of %q was found", target.run.Dir.Path)
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
	for _, r := range ranks {
		if r.Reason != "" {
			p.note("rank %d on %s has no stack: %s", r.Rank, r.Host, printable.Line(r.Reason))
			break
		}
	}
}

// An activeRun is a run whose ranks are running.
type activeRun struct {
	run   runs.Run
	live  rundir.Live
	hosts []string // in the order of ranks
}

// findActive returns a run whose ranks are running. The run must belong to this user: live.json
// of another user could name a job of this user. Root can inspect all runs.
func (p *program) findActive(arg string) (activeRun, error) {
	run, err := p.findRun(arg)
	if err != nil {
		return activeRun{}, err
	}
	if os.Geteuid() != 0 && !runs.IsOwn(run.Dir.Path) {
		return activeRun{}, exitError{exitUsage, fmt.Errorf("run %q belongs to another user", run.Dir.Path)}
	}
	notRunning := exitError{exitUsage, hints.Errorf("`ddpbatch status "+arg+"` shows its phase", "run %q has no running ranks", run.Dir.Path)}
	live, ok := run.Dir.ReadLive()
	if !ok || live.Phase == rundir.PhaseOver {
		return activeRun{}, notRunning
	}
	if live.JobID == "" {
		l, ok := run.Dir.Launcher()
		switch {
		case !ok, l.IsHere() && !l.IsRunning():
			return activeRun{}, notRunning
		case !l.IsHere():
			return activeRun{}, exitError{exitUsage, hints.Errorf("run this command on "+l.Host, "run %q runs on %s, without Slurm", run.Dir.Path, l.Host)}
		}
	}
	hosts, err := slurm.ExpandHosts(live.Hosts)
	if err != nil {
		return activeRun{}, fmt.Errorf("read the hosts of the run: %w", err)
	}
	return activeRun{run, live, hosts}, nil
}

// collectRanks returns the ranks of a run on all of its nodes. If some nodes do not answer, it
// returns the other ranks and an error.
func (p *program) collectRanks(ctx context.Context, a activeRun) ([]inspect.Rank, error) {
	if a.live.JobID == "" {
		return inspect.Collect(ctx, a.run.Record.Run, p.Env)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return inspect.CollectNodes(ctx, a.run.Record.Run, a.live.JobID, a.hosts, binary, p.Env)
}

// srun returns the command line that runs argv on nodes of the run's job, next to its ranks.
func (a activeRun) srun(hosts []string, perNode int, argv ...string) []string {
	return inspect.Srun(a.live.JobID, hosts, perNode, argv...)
}

type execCmd struct {
	Which   string   `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	Rank    *int     `placeholder:"N" help:"Run the command on the node of rank N (default: the first node)."`
	Node    string   `placeholder:"NAME" help:"Run the command on this node."`
	All     bool     `help:"Run the command once on each node. Each line of output starts with the index of the node."`
	Command []string `arg:"" passthrough:"" name:"command" help:"Command and arguments, after --."`
}

// Help returns the detailed help.
func (c *execCmd) Help() string {
	return `For example, ddpbatch exec mine --all -- nvidia-smi. On a cluster, the command runs as a
step of the job (srun --overlap) and shares its cores, memory, and GPUs. It does not
delay the end of the job.`
}

// Run replaces this process by the command, or by srun.
func (c *execCmd) Run(ctx context.Context, p *program) error {
	argv := c.Command
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return usage("no command; for example, ddpbatch exec " + c.Which + " -- nvidia-smi")
	}
	a, err := p.findActive(c.Which)
	if err != nil {
		return err
	}
	hosts, err := p.chooseNodes(ctx, a, c.Rank, c.Node, c.All)
	if err != nil {
		return err
	}
	if a.live.JobID == "" {
		return p.replaceBy(argv)
	}
	argv = a.srun(hosts, 1, argv...)
	if c.All {
		argv = slices.Insert(argv, 1, "--label")
	}
	return p.replaceBy(argv)
}

type shellCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID."`
	Rank  *int   `placeholder:"N" help:"Open the shell on the node of rank N (default: the first node)."`
	Node  string `placeholder:"NAME" help:"Open the shell on this node."`
}

// Run replaces this process by the shell, or by srun.
func (c *shellCmd) Run(ctx context.Context, p *program) error {
	a, err := p.findActive(c.Which)
	if err != nil {
		return err
	}
	hosts, err := p.chooseNodes(ctx, a, c.Rank, c.Node, false)
	if err != nil {
		return err
	}
	shell, _ := environ.Lookup(p.Env, "SHELL")
	argv := []string{cmp.Or(shell, "/bin/sh"), "-i"}
	if a.live.JobID == "" {
		return p.replaceBy(argv)
	}
	argv = a.srun(hosts, 1, argv...)
	argv = slices.DeleteFunc(argv, func(s string) bool { return s == "--input=none" })
	return p.replaceBy(slices.Insert(argv, 1, "--pty"))
}

// chooseNodes returns the nodes that the flags select.
func (p *program) chooseNodes(ctx context.Context, a activeRun, rank *int, node string, all bool) ([]string, error) {
	switch {
	case rank != nil && node != "", all && (rank != nil || node != ""):
		return nil, usage("--rank, --node, and --all exclude each other")
	case all:
		return a.hosts, nil
	case node != "":
		if !slices.Contains(a.hosts, node) {
			return nil, usage(fmt.Sprintf("the run has no node %q: it runs on %s", node, a.live.Hosts))
		}
		return []string{node}, nil
	case rank != nil:
		// Only the nodes know where torchrun started its workers.
		ranks, err := p.collectRanks(ctx, a)
		for _, r := range ranks {
			if r.Rank == *rank && (slices.Contains(a.hosts, r.Host) || a.live.JobID == "") {
				return []string{r.Host}, nil
			}
		}
		if err != nil {
			return nil, err
		}
		return nil, usage(fmt.Sprintf("the run has no rank %d on %s", *rank, a.live.Hosts))
	}
	return a.hosts[:1], nil
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
