package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/adhoc"
	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// commandFile is the name of the job file in messages about a command without a job file.
const commandFile = "command line"

// cutCommand splits the arguments of `ddpbatch launch [flags] -- CMD ARGS` at the first "--". It does
// not split the arguments of other commands.
func cutCommand(args []string) (own, command []string, found bool) {
	if len(args) == 0 || args[0] != "launch" {
		return args, nil, false
	}
	i := slices.Index(args, "--")
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

// hasLayoutFlags reports whether a flag is set that describes a job without a job file.
func (c *launchCmd) hasLayoutFlags() bool {
	return c.Name != "" || c.Nodes > 0 || c.Total > 0 || c.TasksPerNode > 0 || c.CPUsPerTask > 0 || c.Launcher != "" || c.Site != "" || c.Image != "" ||
		c.Mounts != "" || len(c.SrunOptions) > 0
}

// checkCommand returns an error if the flags, the job file, and the command after "--" are not valid
// together.
func (c *launchCmd) checkCommand(p *program) error {
	switch {
	case p.Command == nil && c.hasLayoutFlags():
		return usage("--name, --nodes, --ntasks, --tasks-per-node, --cpus-per-task, --launcher, --site, --container-image, --container-mounts, and --srun-option require a command after --; use --set to override a key of the job file")
	case p.Command == nil:
		return nil
	case len(p.Command) == 0:
		return usage("give a command after --, such as ddpbatch launch -- python3 train.py")
	case c.Job != "" && c.hasLayoutFlags():
		return usage("the job file describes the job: use --set to override its keys")
	case c.Digest != "":
		return usage("--digest is not valid with a command, only for a submitted job")
	case c.Nodes < 0 || c.Total < 0 || c.TasksPerNode < 0 || c.CPUsPerTask < 0:
		return usage("--nodes, --ntasks, --tasks-per-node, and --cpus-per-task must be at least 1")
	case c.Mounts != "" && c.Image == "":
		return usage("--container-mounts requires --container-image")
	case slices.ContainsFunc(p.Command, func(a string) bool { return !utf8.ValidString(a) }):
		return usage("the command after -- contains text that is not UTF-8")
	case c.Job == "" && len(p.Command) == 1 && strings.HasSuffix(p.Command[0], ".toml"):
		return usage("the command after -- is a job file: write it before --")
	}
	return nil
}

// loadJob loads the job file, with the command after "--" as its command if there is one, or the
// job of a command without a job file.
func (c *launchCmd) loadJob(p *program, a *slurm.Allocation) (*jobfile.File, error) {
	switch {
	case c.Job == "":
		return c.commandJob(p, a)
	case p.Command != nil:
		return p.load(c.Job, append(slices.Clone(c.Set), "command.argv="+jobs.TOMLList(p.Command))...)
	}
	return p.load(c.Job, c.Set...)
}

// commandJob returns the job for a command without a job file. Its values come from the flags,
// and from the allocation if there is one.
func (c *launchCmd) commandJob(p *program, a *slurm.Allocation) (*jobfile.File, error) {
	if p.dirNeeded = p.dirNeeded || p.Dir == ""; p.Dir == "" {
		return nil, usage("a command without a job file needs the current directory")
	}
	if a == nil && (c.Nodes > 1 || c.CPUsPerTask > 0 || c.Total > 0 && c.TasksPerNode > 0 && c.Total != c.TasksPerNode) {
		return nil, usage("without a Slurm allocation, all ranks run on this machine: use -n, and neither --nodes nor --cpus-per-task")
	}
	command := adhoc.Command{Argv: p.Command, Name: c.Name, Site: c.Site, Nodes: c.Nodes, Tasks: c.Total, TasksPerNode: c.TasksPerNode, CPUsPerTask: c.CPUsPerTask,
		Launcher: c.Launcher, Image: c.Image, Mounts: c.Mounts, StepOptions: c.SrunOptions}
	if c.Ranks != nil {
		command.Tasks = *c.Ranks
	}
	text, err := command.JobFile(p.lookup, a)
	if err != nil {
		return nil, err
	}
	return p.loader().Parse(commandFile, text, p.Dir, c.Set...)
}

// maxCommandRuns is the maximum number of runs of one command in one job, and of runs with one
// name outside of Slurm.
const maxCommandRuns = 10000

// commandDir creates the run directory of a command without a job file: runs/NAME-JOBID inside
// a job and runs/NAME otherwise. A script can start several commands, also at the same time. If the
// directory exists, commandDir appends a number. Creating the directory reserves its name.
func (p *program) commandDir(name, jobID string) (string, error) {
	if jobID != "" {
		name += "-" + jobID
	}
	parent := p.abs(runs.DefaultDir)
	for i := 1; i <= maxCommandRuns; i++ {
		dir := filepath.Join(parent, name)
		if i > 1 {
			dir += "-" + strconv.Itoa(i)
		}
		if created, err := rundir.Reserve(dir); created || err != nil {
			return dir, err
		}
	}
	return "", hints.Add(fmt.Errorf("%d runs are named %q in %q", maxCommandRuns, name, parent), "choose a name with --name, or delete old runs")
}
