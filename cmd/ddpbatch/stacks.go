package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
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
	target, err := p.findActive(c.Which)
	if err != nil {
		return err
	}
	ranks, err := p.findRanks(ctx, target, false)
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

// An activeRun is a run whose ranks are running.
type activeRun struct {
	run   runs.Run
	live  rundir.Live
	hosts []string // nodes, in the order of ranks
}

// findActive returns a run whose ranks are running. The run must belong to this user: live.json
// of another user could name a job of this user. Root can inspect all runs.
//
// A run of this user stays open until the process ends, so the owner of the files that are read
// cannot change after the check.
func (p *program) findActive(arg string) (activeRun, error) {
	run, err := p.findRun(arg)
	if err != nil {
		return activeRun{}, err
	}
	own := runs.IsOwn(run.Dir.Path)
	if os.Geteuid() != 0 && !own {
		return activeRun{}, exitError{exitUsage, fmt.Errorf("run %q belongs to another user", run.Dir.Path)}
	}
	if own {
		if run.Dir, _, err = run.Dir.Hold(); err != nil {
			return activeRun{}, err
		}
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
	if err == nil && len(hosts) == 0 {
		err = errors.New("live.json names none")
	}
	if err != nil {
		return activeRun{}, fmt.Errorf("read the hosts of the run: %w", err)
	}
	return activeRun{run, live, hosts}, nil
}

// findRanks returns the ranks of a run on all of its nodes, with what they are doing unless findOnly
// is set. If some nodes do not answer, it returns the other ranks and an error.
func (p *program) findRanks(ctx context.Context, a activeRun, findOnly bool) ([]inspect.Rank, error) {
	search := inspect.Search{RunID: a.run.Record.Run, Env: p.Env, FindOnly: findOnly}
	if a.live.JobID == "" {
		return search.OnHost(ctx)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return search.OnNodes(ctx, a.nodes(a.hosts), binary)
}

// nodes returns some of the run's nodes, for package inspect.
func (a activeRun) nodes(hosts []string) inspect.Nodes {
	nodes := inspect.Nodes{JobID: a.live.JobID, Hosts: hosts}
	for _, list := range a.live.Groups {
		component, err := slurm.ExpandHosts(list)
		if err != nil {
			component = nil // srun then reports that the node is not in the step
		}
		nodes.Components = append(nodes.Components, component)
	}
	return nodes
}

// checkJobOwner returns an error if the job of a run does not belong to the owner of the run. Root can
// run commands in all jobs, and live.json of a user can name the job of another user.
func (p *program) checkJobOwner(ctx context.Context, a activeRun) error {
	if a.live.JobID == "" || runs.IsOwn(a.run.Dir.Path) {
		return nil
	}
	info, err := a.run.Dir.StatPath(a.run.Dir.Path)
	if err != nil {
		return err
	}
	owner, _ := safefile.Owner(info)
	client := slurm.Client{Environ: p.Env}
	switch of, err := client.Owner(ctx, a.live.JobID); {
	case err != nil:
		return err
	case of != owner:
		return fmt.Errorf("run %q belongs to user %d, but names job %s of user %d", a.run.Dir.Path, owner, a.live.JobID, of)
	}
	return nil
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
	a, hosts, variables, err := p.chooseNodes(ctx, c.Which, c.Rank, c.Node, c.All)
	if err != nil {
		return err
	}
	if argv, err = a.commandLine(variables, argv); err != nil {
		return err
	}
	if a.live.JobID == "" {
		return p.replaceBy(argv)
	}
	return p.replaceBy(a.nodes(hosts).Srun(c.All, argv...))
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
	a, hosts, variables, err := p.chooseNodes(ctx, c.Which, c.Rank, c.Node, false)
	if err != nil {
		return err
	}
	shell, _ := environ.Lookup(p.Env, "SHELL")
	argv, err := a.commandLine(variables, []string{cmp.Or(shell, "/bin/sh"), "-i"})
	if err != nil {
		return err
	}
	if a.live.JobID == "" {
		return p.replaceBy(argv)
	}
	argv = a.nodes(hosts).Srun(false, argv...)
	argv = slices.DeleteFunc(argv, func(s string) bool { return s == "--input=none" })
	return p.replaceBy(slices.Insert(argv, 1, "--pty"))
}

// rankPIDVariable is set to the ID of the rank's process.
const rankPIDVariable = "DDPBATCH_RANK_PID"

// chooseNodes returns a run whose job belongs to its owner, the nodes that the flags select, and the
// variables of the selected rank.
func (p *program) chooseNodes(ctx context.Context, which string, rank *int, node string, all bool) (a activeRun, hosts, variables []string, err error) {
	if a, err = p.findActive(which); err == nil {
		err = p.checkJobOwner(ctx, a)
	}
	if err != nil {
		return a, nil, nil, err
	}
	switch {
	case rank != nil && node != "", all && (rank != nil || node != ""):
		return a, nil, nil, usage("--rank, --node, and --all exclude each other")
	case all:
		return a, a.hosts, nil, nil
	case node != "":
		if !slices.Contains(a.hosts, node) {
			return a, nil, nil, usage(fmt.Sprintf("the run has no node %q: it runs on %s", node, a.live.Hosts))
		}
		return a, []string{node}, nil, nil
	case rank != nil:
		// Only the nodes know where torchrun started its workers.
		ranks, err := p.findRanks(ctx, a, true)
		for _, r := range ranks {
			if r.Rank == *rank && (slices.Contains(a.hosts, r.Host) || a.live.JobID == "") {
				for _, name := range slices.Sorted(maps.Keys(r.Variables)) {
					variables = append(variables, name+"="+r.Variables[name])
				}
				return a, []string{r.Host}, append(variables, rankPIDVariable+"="+strconv.Itoa(r.PID)), nil
			}
		}
		if err != nil {
			return a, nil, nil, err
		}
		return a, nil, nil, usage(fmt.Sprintf("the run has no rank %d on %s", *rank, a.live.Hosts))
	}
	return a, a.hosts[:1], nil, nil
}

// commandLine returns the command line that runs argv with variables on a node of the run. The
// variables are set after srun, which may change the visible GPUs.
func (a activeRun) commandLine(variables, argv []string) ([]string, error) {
	if a.live.JobID != "" || len(variables) > 0 {
		binary, err := os.Executable()
		if err != nil {
			return nil, err
		}
		argv = environ.StartArgv(binary, argv)
	}
	if len(variables) == 0 {
		return argv, nil
	}
	return slices.Concat([]string{"/usr/bin/env"}, variables, argv), nil
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
