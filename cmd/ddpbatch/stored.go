package main

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/snapshot"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// jobID returns the ID of the surrounding Slurm job in the format of the run record, or ""
// without an allocation.
func jobID(a *slurm.Allocation) string {
	if a == nil {
		return ""
	}
	return a.ID()
}

// claim returns the claim that this process makes to the lock of a run directory.
func (p *program) claim(ctx context.Context, jobID string) rundir.Claim {
	return rundir.Claim{Job: jobID, Ended: submit.QueryEnded(ctx, p.slurm())}
}

// launcherClaim returns the claim of a launcher. Other commands can ask the launcher to stop.
func (p *program) launcherClaim(ctx context.Context, o *launch.Options) rundir.Claim {
	c := p.claim(ctx, jobID(o.Allocation))
	c.Launcher = true
	return c
}

// checkSubmission compares this program and the job with the submission. It warns if this program
// or the job file has changed since then. It verifies the snapshot of the user's code and
// selects it as the working directory.
func (p *program) checkSubmission(ctx context.Context, c *launchCmd, o *launch.Options, id string) error {
	submitDir := ""
	if c.RunDir != "" {
		submitDir = p.abs(c.RunDir)
	}
	s, err := runs.FindSubmission(o.Dir, id, submitDir, c.Job == "")
	if err != nil {
		return err
	}
	// Without a copy of the code, the job would run what is now in the working directory.
	if id != "" && c.Digest != "" && o.Job.Command != nil && o.Job.Command.Snapshot && (s == nil || s.Code == nil || s.Code.Snapshot == "") {
		return hints.Add(fmt.Errorf("run directory %q has no snapshot of the code for job %s: it is the directory of a different run, or its record was rebuilt", o.Dir.Path, id),
			"submit the job again")
	}
	if s == nil {
		return nil
	}
	if s.ProgramSHA256 != "" && s.ProgramSHA256 != o.Program {
		p.note("warning: this program changed while the job was queued: submitted with version %s (sha256 %.12s), running version %s (sha256 %.12s)",
			s.Version, s.ProgramSHA256, version(), o.Program)
	}
	if c.Job == "" && s.SpecSHA256 != "" && s.SpecSHA256 != o.Spec && !runs.IsSweepDigest(o.Dir, s.SpecSHA256) {
		p.note("warning: the job file %q was edited after the job was submitted (sha256 %.12s, now %.12s); using the edited file", o.Dir.Spec(), s.SpecSHA256, o.Spec)
	}
	if s.Code == nil || s.Code.Snapshot == "" || o.Job.Command == nil || !o.Job.Command.Snapshot {
		return nil // a record must not replace the working directory that the job file names
	}
	if err := snapshot.Verify(ctx, s.Code.Snapshot, snapshot.Manifest{SHA256: s.Code.SHA256, Files: s.Code.Files, Bytes: s.Code.Bytes}); err != nil {
		return hints.Add(fmt.Errorf("the snapshot of the code is not what was submitted: %w", err), "submit the job again")
	}
	o.Job.Command.Workdir = jobs.Text(s.Code.Snapshot)
	return nil
}
