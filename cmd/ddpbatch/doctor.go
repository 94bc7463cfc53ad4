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
)

type doctorCmd struct {
	JSON  bool   `help:"Print the findings as JSON."`
	InJob bool   `xor:"what" help:"Look at every node of the allocation around this, by srun, and at what differs between them."`
	Hosts string `placeholder:"LIST" help:"With --in-job: these nodes of the allocation only, as a host list."`
	Dir   string `default:"." placeholder:"DIR" help:"A folder on the file system where run directories are."`
	Log   string `xor:"what" placeholder:"FILE" help:"Look for known failures in a log instead, or in that of a run; - is standard input."`
	Node  string `xor:"what" hidden:"" placeholder:"TOKEN" help:"Be one node of --in-job."`
}

func (c *doctorCmd) Help() string {
	return `On a login node: Slurm's settings that surprise, what NCCL alone would choose, GPUs
with driver and libraries, limits, /dev/shm, clocks, and what the file system of --dir
promises and how fast it is. In an allocation, --in-job looks at every node and names
what differs:

    salloc -N 4 ddpbatch doctor --in-job

--log recognises failures of NCCL, Gloo, PyTorch, CUDA, MPI, Slurm and the kernel in
what a job has printed: likely causes first, with their lines and what to do.

The verdicts are ok, look (it may be right here) and bad. The exit code is 1 if one is
bad, or if --log has found a failure.`
}

func (c *doctorCmd) Run(ctx context.Context, p *program) error {
	switch {
	case c.Hosts != "" && !c.InJob:
		return usage("--hosts goes with --in-job")
	case c.Log != "":
		return c.log(p)
	case c.Node != "":
		return p.printJSON(doctor.Examine(ctx, doctor.Options{Lookup: p.lookup, Dir: p.abs(c.Dir), Job: true, Token: c.Node}))
	}
	findings := p.examineSlurm(ctx)
	if c.InJob {
		nodes, err := c.inJob(ctx, p)
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
		p.tellFindings(findings)
	}
	if n := doctor.CountFailed(findings); n > 0 {
		return fmt.Errorf("%d of %s bad", n, format.Count(len(findings), "finding"))
	}
	return nil
}

// tellFindings prints a table of the findings, followed by their hints.
func (p *program) tellFindings(findings []doctor.Finding) {
	var rows [][]string
	for _, f := range findings {
		what := f.Detail
		if f.Level == doctor.OK && f.Path != "" {
			what = f.Path
		}
		if f.Hosts != "" {
			what = f.Hosts + ": " + what
		}
		rows = append(rows, []string{f.Part, string(f.Level), f.Version, what})
	}
	header := []string{"PART", "VERDICT", "VERSION", "WHAT"}
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

// examineSlurm checks the configuration of the cluster. It returns a single finding if Slurm
// is not available.
func (p *program) examineSlurm(ctx context.Context) []doctor.Finding {
	config, err := p.slurm().Config(ctx)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return []doctor.Finding{{Part: "slurm", Level: doctor.Warn, Detail: "not installed here", Hint: "on a login node try `module load slurm`; `ddpbatch launch` needs none"}}
	case err != nil && strings.Contains(err.Error(), "configuration source"): // the client is installed but not configured
		return []doctor.Finding{{Part: "slurm", Level: doctor.Warn, Detail: "the client is here, and finds no cluster", Hint: hints.Of(err)}}
	case err != nil:
		return []doctor.Finding{{Part: "slurm", Level: doctor.Fail, Detail: err.Error(), Hint: hints.Of(err)}}
	}
	return doctor.Slurm(config)
}
