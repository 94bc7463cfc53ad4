package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/snapshot"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// A storedJob is a job as stored in its run directory.
type storedJob struct {
	job     *jobs.Job // with the defaults of its site
	site    *sites.Profile
	record  rundir.Record
	spec    []byte // contents of the job file
	profile []byte // contents of the site profile
}

// openStored reads the job that is stored in a run directory.
func openStored(dir rundir.Dir) (s storedJob, err error) {
	if s.record, err = dir.ReadRecord(); err != nil {
		return s, err
	}
	if s.spec, err = dir.ReadSpec(); err != nil {
		return s, err
	}
	if s.job, err = jobs.Parse(dir.Spec(), s.spec); err != nil {
		return s, err
	}
	if s.profile, err = dir.ReadSite(); err != nil {
		return s, err
	}
	if s.site, err = sites.Parse(s.job.Site, dir.Site(), s.profile); err != nil {
		return s, err
	}
	s.site.Apply(s.job)
	return s, nil
}

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

// asSubmitted compares this program and the job with the submission. It warns if this program
// or the job file has changed since then. It verifies the snapshot of the user's code and
// selects it as the working directory.
func (p *program) asSubmitted(ctx context.Context, c *launchCmd, o *launch.Options, id string) error {
	record, err := o.Dir.ReadRecord()
	if err != nil {
		return err
	}
	s := record.Of(id)
	if s == nil && id != "" && c.RunDir != "" {
		// The job can start before submit has recorded its ID. For a sweep, the directory of
		// the sweep records the submissions.
		of, release, err := rundir.OpenOwn(p.abs(c.RunDir))
		if err != nil {
			return err
		}
		defer release()
		if record, err = of.ReadRecord(); err != nil {
			return err
		}
		if s = record.Of(id); s == nil {
			array, _, _ := strings.Cut(id, "_")
			s = record.Of(array)
		}
		if s == nil && c.Job == "" {
			s = record.Pending
		}
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
		p.note("WARNING: this program changed while the job was queued: submitted with version %s (sha256 %.12s), running version %s (sha256 %.12s)",
			s.Version, s.ProgramSHA256, version(), o.Program)
	}
	if c.Job == "" && s.SpecSHA256 != "" && s.SpecSHA256 != o.Spec && !isSweepDigest(o.Dir, s.SpecSHA256) {
		p.note("WARNING: the job file %q was edited after the job was submitted (sha256 %.12s, now %.12s); the job runs as it is now", o.Dir.Spec(), s.SpecSHA256, o.Spec)
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

// isSweepDigest reports whether dir is a trial of a sweep whose job file has this digest.
// Older versions recorded the sweep's digest for each trial.
func isSweepDigest(dir rundir.Dir, digest string) bool {
	if !dir.IsElement() {
		return false
	}
	sweep, err := rundir.Dir{Path: filepath.Dir(filepath.Dir(dir.Path))}.ReadRecord()
	last := sweep.Last()
	return err == nil && (last != nil && last.SpecSHA256 == digest || sweep.Pending != nil && sweep.Pending.SpecSHA256 == digest)
}
