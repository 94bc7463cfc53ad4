package runs

import (
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// A StoredJob is a job as its run directory stores it.
type StoredJob struct {
	Job         *jobs.Job // with the defaults of its site
	Site        *sites.Profile
	Record      rundir.Record
	Spec        []byte // contents of the job file
	SiteProfile []byte // contents of the site profile
}

// LoadJob reads the job that is stored in a run directory.
func LoadJob(dir rundir.Dir) (s StoredJob, err error) {
	if s.Record, err = dir.ReadRecord(); err != nil {
		return s, err
	}
	if s.Spec, err = dir.ReadSpec(); err != nil {
		return s, err
	}
	if s.Job, err = jobs.Parse(dir.Spec(), s.Spec); err != nil {
		return s, err
	}
	if s.SiteProfile, err = dir.ReadSite(); err != nil {
		return s, err
	}
	if s.Site, err = sites.Parse(s.Job.Site, dir.Site(), s.SiteProfile); err != nil {
		return s, err
	}
	s.Site.Apply(s.Job)
	return s, nil
}

// CheckDigest returns an error if the job that was loaded from dir differs from the submitted job. The
// batch script in Slurm's spool directory contains the digest of the submitted job, and other users
// cannot replace that script.
func (s StoredJob) CheckDigest(dir rundir.Dir, digest string) error {
	if digest == rundir.JobDigest(s.Spec, s.SiteProfile, s.Record.Base) {
		return nil
	}
	return hints.Errorf("submit the job again; to change a job, edit its job file, not the copy in the run directory",
		"run directory %q does not contain the submitted job: its job file, its site profile, or the directory of the job file has changed", dir.Path)
}

// FindSubmission returns the submission of the job that runs in dir, or nil if it does not exist.
// SubmitDir is the directory that was submitted: dir itself, or its sweep; it may be empty.
// MayBePending is true if the job may have started before submit recorded its ID.
func FindSubmission(dir rundir.Dir, jobID, submitDir string, mayBePending bool) (*rundir.Submission, error) {
	record, err := dir.ReadRecord()
	if err != nil {
		return nil, err
	}
	s := record.Of(jobID)
	if s != nil || jobID == "" || submitDir == "" {
		return s, nil
	}
	// The job can start before submit has recorded its ID. For a sweep, the directory of the
	// sweep records the submissions.
	if submitDir != dir.Path {
		sweep, _, release, err := dir.OpenSweep()
		if err != nil {
			return nil, err
		}
		defer release()
		if record, err = sweep.ReadRecord(); err != nil {
			return nil, err
		}
	}
	if s = record.Of(jobID); s == nil {
		array, _, _ := strings.Cut(jobID, "_")
		s = record.Of(array)
	}
	if s == nil && mayBePending {
		s = record.Pending
	}
	return s, nil
}

// IsSweepDigest reports whether dir is a trial of a sweep whose job file has this digest. Older
// versions recorded the sweep's digest for each trial.
func IsSweepDigest(dir rundir.Dir, digest string) bool {
	if !dir.IsElement() {
		return false
	}
	sweep, _, release, err := dir.OpenSweep()
	if err != nil {
		return false
	}
	defer release()
	record, err := sweep.ReadRecord()
	last := record.Last()
	return err == nil && (last != nil && last.SpecSHA256 == digest || record.Pending != nil && record.Pending.SpecSHA256 == digest)
}
