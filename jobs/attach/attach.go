// Package attach reaches the ranks of a running run: it finds them on the nodes of the run, and
// returns the command lines of programs that run next to them.
//
// The package guarantees:
//
//   - Only root can attach to the run of another user: its live.json could name a job of this user.
//     [Run.CheckJobOwner] checks that such a run names a job of its owner.
//   - A program next to a rank receives no variables with which it could join the ranks.
//   - In a Slurm job, a program starts in the directory of this process or in "/", as
//     [environ.StartArgv] describes.
//
// Package inspect reads the processes of ranks. This package does not run the command lines.
package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/inspect"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// A Run is a run whose ranks are running.
type Run struct {
	runs.Run
	Live  rundir.Live
	Hosts []string // nodes, in the order of ranks

	slurm slurm.Client
}

// Find returns the run that arg names in a store. It returns an error if no ranks are running, or if
// they run on a different machine without Slurm.
//
// A run of this user stays open until the process ends, so the owner of the files that are read
// cannot change after the check.
func Find(store *runs.Store, arg string) (*Run, error) {
	run, err := store.Find(arg)
	if err != nil {
		return nil, err
	}
	own := runs.IsOwn(run.Dir.Path)
	if os.Geteuid() != 0 && !own {
		return nil, exitcode.Add(exitcode.Usage, fmt.Errorf("run %q belongs to another user", run.Dir.Path))
	}
	if own {
		if run.Dir, _, err = run.Dir.Hold(); err != nil {
			return nil, err
		}
	}
	live, ok := run.Dir.ReadLive()
	isRunning := ok && live.Phase != rundir.PhaseOver
	if isRunning && live.JobID == "" {
		l, ok := run.Dir.Launcher()
		if ok && !l.IsHere() {
			return nil, exitcode.Usagef("run this command on "+l.Host, "run %q runs on %s, without Slurm", run.Dir.Path, l.Host)
		}
		isRunning = ok && l.IsRunning()
	}
	if !isRunning {
		return nil, exitcode.Usagef("`ddpbatch status "+jobs.ShellQuote(arg)+"` shows its phase", "run %q has no running ranks", run.Dir.Path)
	}
	hosts, err := slurm.ExpandHosts(live.Hosts)
	if err == nil && len(hosts) == 0 {
		err = errors.New("live.json names none")
	}
	if err != nil {
		return nil, fmt.Errorf("read the hosts of the run: %w", err)
	}
	return &Run{run, live, hosts, store.Slurm}, nil
}

// isLocal reports whether the ranks run on this machine, without Slurm.
func (r *Run) isLocal() bool { return r.Live.JobID == "" }

// CheckJobOwner returns an error if the job of the run does not belong to the owner of the run. Root
// can run commands in all jobs, and live.json of a user can name the job of another user.
func (r *Run) CheckJobOwner(ctx context.Context) error {
	if r.isLocal() || runs.IsOwn(r.Dir.Path) {
		return nil
	}
	info, err := r.Dir.StatPath(r.Dir.Path)
	if err != nil {
		return err
	}
	owner, _ := safefile.Owner(info)
	switch of, err := r.slurm.Owner(ctx, r.Live.JobID); {
	case err != nil:
		return err
	case of != owner:
		return fmt.Errorf("run %q belongs to user %d, but names job %s of user %d", r.Dir.Path, owner, r.Live.JobID, of)
	}
	return nil
}

// FindRanks returns the ranks on all nodes of the run, with what they are doing unless findOnly is set.
// If some nodes do not answer, it returns the other ranks and an error.
func (r *Run) FindRanks(ctx context.Context, findOnly bool) ([]inspect.Rank, error) {
	search := inspect.Search{RunID: r.Record.Run, Env: r.slurm.Environ, FindOnly: findOnly}
	if r.isLocal() {
		return search.OnHost(ctx)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return search.OnNodes(ctx, r.inspectNodes(r.Hosts), binary)
}

// inspectNodes returns some of the run's nodes, for package inspect.
func (r *Run) inspectNodes(hosts []string) inspect.Nodes {
	nodes := inspect.Nodes{JobID: r.Live.JobID, Hosts: hosts}
	for _, list := range r.Live.Groups {
		component, err := slurm.ExpandHosts(list)
		if err != nil {
			component = nil // srun then reports that the node is not in the step
		}
		nodes.Components = append(nodes.Components, component)
	}
	return nodes
}

// rankPIDVariable is set to the ID of the rank's process.
const rankPIDVariable = "DDPBATCH_RANK_PID"

// A Target is some nodes of a run, or the node of a rank, on which a program runs.
type Target struct {
	run       *Run
	hosts     []string
	variables []string // of the rank; nil without a rank
}

// Nodes returns a target with some of r.Hosts.
func (r *Run) Nodes(hosts ...string) Target { return Target{run: r, hosts: hosts} }

// FindRank returns a target with the node and the variables of a rank. It returns false if the rank is
// not found, and an error if some nodes did not answer, so that the rank may be on one of them.
func (r *Run) FindRank(ctx context.Context, rank int) (t Target, found bool, err error) {
	ranks, err := r.FindRanks(ctx, true) // only the nodes know where torchrun started its workers
	for _, p := range ranks {
		if p.Rank != rank || !r.isLocal() && !slices.Contains(r.Hosts, p.Host) {
			continue
		}
		t = r.Nodes(p.Host)
		for _, name := range slices.Sorted(maps.Keys(p.Variables)) {
			t.variables = append(t.variables, name+"="+p.Variables[name])
		}
		t.variables = append(t.variables, rankPIDVariable+"="+strconv.Itoa(p.PID))
		return t, true, nil
	}
	return Target{}, false, err
}

// CommandLine returns the command line that runs argv once on each node of the target: srun in a
// Slurm job. With labels, each line of srun's output starts with the index of the node.
func (t Target) CommandLine(labels bool, argv ...string) ([]string, error) {
	if !t.run.isLocal() || len(t.variables) > 0 {
		binary, err := os.Executable()
		if err != nil {
			return nil, err
		}
		argv = environ.StartArgv(binary, argv)
	}
	if len(t.variables) > 0 { // set after srun, which may change the visible GPUs
		argv = slices.Concat([]string{"/usr/bin/env"}, t.variables, argv)
	}
	if t.run.isLocal() {
		return argv, nil
	}
	return t.run.inspectNodes(t.hosts).Srun(labels, argv...), nil
}

// Interactive returns the command line that runs argv with the terminal on the only node of the
// target.
func (t Target) Interactive(argv ...string) ([]string, error) {
	argv, err := t.CommandLine(false, argv...)
	if err != nil || t.run.isLocal() {
		return argv, err
	}
	argv = slices.DeleteFunc(argv, func(s string) bool { return s == "--input=none" })
	return slices.Insert(argv, 1, "--pty"), nil
}
