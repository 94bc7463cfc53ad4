package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/doctor"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type doctorCmd struct {
	JSON  bool   `help:"Print the result as JSON."`
	InJob bool   `xor:"what" help:"Check all nodes of the current allocation with srun, and report differences between them."`
	Hosts string `placeholder:"LIST" help:"Nodes to check with --in-job, as a node list (default: all nodes of the allocation)."`
	Dir   string `default:"." placeholder:"DIR" help:"Directory on the file system that holds the run directories (default: the current directory)."`
	Log   string `xor:"what" placeholder:"FILE" help:"Search a log for known failures: a file, a run, or - for standard input."`
	Node  string `xor:"what" hidden:"" placeholder:"TOKEN" help:"Check one node for --in-job."`
}

func (c *doctorCmd) Help() string {
	return `Checks the settings of Slurm that often cause problems, the network and the default
interface of NCCL, GPUs with their driver and libraries, limits, /dev/shm, clocks, and
the file system of --dir: its speed and its guarantees. In an allocation, --in-job
checks all nodes and reports differences:

    salloc -N 4 ddpbatch doctor --in-job

With --log, it searches the output of a job for known failures of NCCL, Gloo, PyTorch,
CUDA, MPI, Slurm, and the kernel. It prints likely causes first, with line numbers and
fixes.

The levels are ok, warn (may be fine on this system), and fail (jobs fail or are slow).
JSON has "look" for warn and "bad" for fail. The exit code is 1 if a check fails, or if
--log finds a failure.`
}

func (c *doctorCmd) Run(ctx context.Context, p *program) error {
	switch {
	case c.Hosts != "" && !c.InJob:
		return usage("--hosts requires --in-job")
	case c.Log != "":
		return c.log(p)
	case c.Node != "":
		return p.printJSON(doctor.Examine(ctx, doctor.Options{Lookup: p.lookup, Dir: p.abs(c.Dir), Job: true, Token: c.Node}))
	}
	findings := p.examineSlurm(ctx)
	if c.InJob {
		allocation, err := c.allocation(p)
		if err != nil {
			return err
		}
		nodes, err := doctor.ExamineNodes(ctx, allocation, p.abs(c.Dir), p.Env)
		if err != nil {
			return err
		}
		findings = append(findings, nodes...)
	} else {
		findings = append(findings, doctor.Examine(ctx, doctor.Options{Lookup: p.lookup, Dir: p.abs(c.Dir)}).Findings...)
	}
	if c.JSON {
		if err := p.printJSON(findings); err != nil {
			return err
		}
	} else {
		p.printFindings(findings)
	}
	if n := doctor.CountFailed(findings); n > 0 {
		return fmt.Errorf("%d of %s failed", n, format.Count(len(findings), "check"))
	}
	return nil
}

// allocation returns the allocation with the nodes to check: the nodes in --hosts, or all nodes.
func (c *doctorCmd) allocation(p *program) (slurm.Allocation, error) {
	a, inside, err := slurm.AllocationFromEnv(p.lookup)
	switch {
	case err != nil:
		return a, err
	case !inside:
		return a, exitError{exitUsage, hints.Add(errors.New("--in-job requires an allocation"), "run `salloc -N 2 ddpbatch doctor --in-job`, or run it in a batch script")}
	case a.StepTasks > 1:
		return a, usage("run --in-job without srun: it starts one task per node itself")
	case c.Hosts == "":
		return a, nil
	}
	hosts, err := slurm.ExpandHosts(c.Hosts)
	if err != nil {
		return a, exitError{exitUsage, err}
	}
	for _, host := range hosts {
		if !slices.Contains(a.Nodes, host) {
			return a, usage(fmt.Sprintf("--hosts: %s is not a node of the allocation %s", host, slurm.FoldHosts(a.Nodes)))
		}
	}
	a.Nodes = hosts
	return a, nil
}

// printFindings prints a table of the findings, followed by their hints.
func (p *program) printFindings(findings []doctor.Finding) {
	var rows [][]string
	for _, f := range findings {
		what := f.Detail
		if f.Level == doctor.OK && f.Path != "" {
			what = f.Path
		}
		if f.Hosts != "" {
			what = f.Hosts + ": " + what
		}
		rows = append(rows, []string{f.Part, levelName(f.Level), f.Version, what})
	}
	header := []string{"PART", "LEVEL", "VERSION", "RESULT"}
	if !slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Version != "" }) {
		header = slices.Delete(header, 2, 3) // no GPU library found
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 2, 3)
		}
	}
	p.table(header, rows)
	for _, f := range findings {
		if f.Hint != "" {
			p.note("%s: %s", f.Part, f.Hint)
		}
	}
}

// levelName returns the name of a level in the table. The JSON output has different names.
func levelName(v doctor.Level) string {
	switch v {
	case doctor.Warn:
		return "warn"
	case doctor.Fail:
		return "fail"
	}
	return string(v)
}

// examineSlurm checks the configuration of the cluster. It returns a single finding if Slurm
// is not available.
func (p *program) examineSlurm(ctx context.Context) []doctor.Finding {
	config, err := p.slurm().Config(ctx)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return []doctor.Finding{{Part: "slurm", Level: doctor.Warn, Detail: "not installed on this machine", Hint: "on a login node, try `module load slurm`; `ddpbatch launch` works without Slurm"}}
	case err != nil && strings.Contains(err.Error(), "configuration source"): // the client is installed but not configured
		return []doctor.Finding{{Part: "slurm", Level: doctor.Warn, Detail: "installed, but not configured for a cluster", Hint: hints.Of(err)}}
	case err != nil:
		return []doctor.Finding{{Part: "slurm", Level: doctor.Fail, Detail: err.Error(), Hint: hints.Of(err)}}
	}
	return doctor.Slurm(config)
}
