package submit

import "github.com/ddpbatch/ddpbatch/jobs/rundir"

// PrepareLaunch stores the job of a launch without a submission in its run directory. It uses the
// fields Job, Site, Base, Spec, Version, Host, and User of req. If a batch script of the user started
// the launcher, jobID is its job, which PrepareLaunch records. Other commands can then find the job of
// the run.
func PrepareLaunch(dir rundir.Dir, req Request, jobID string) error {
	record, err := dir.Prepare(string(req.Job.Name), req.Base, req.Version, req.Spec)
	if err != nil {
		return err
	}
	if jobID != "" && record.Of(jobID) == nil && record.Pending == nil {
		s := rundir.NewSubmission()
		s.ID, s.JobID, s.Host, s.User, s.Version, s.SpecSHA256 = "", jobID, req.Host, req.User, req.Version, rundir.Digest(req.Spec)
		record.Submissions = append(record.Submissions, s)
		if err := dir.WriteRecord(record); err != nil {
			return err
		}
	}
	return dir.WriteSite(req.Site.Source())
}

// CreateTrial creates and holds the run directory of a trial that is launched without a submission.
// It also creates the directory and the record of the sweep. It uses the fields Job, Base, Spec, Dir,
// and Version of req. The index must be valid for the sweep.
func CreateTrial(req Request, index int) (trial rundir.Dir, release func(), err error) {
	dir, err := rundir.Create(req.Dir)
	if err != nil {
		return rundir.Dir{}, nil, err
	}
	dir, releaseSweep, err := dir.Hold()
	if err != nil {
		return rundir.Dir{}, nil, err
	}
	defer releaseSweep()
	// A submission of the sweep may write the same record.
	unlock, err := dir.LockSubmission()
	if err != nil {
		return rundir.Dir{}, nil, err
	}
	defer unlock()
	if err := CheckResumable(dir, req.Job.Sweep); err != nil {
		return rundir.Dir{}, nil, err
	}
	record, err := dir.Prepare(string(req.Job.Name), req.Base, req.Version, req.Spec)
	if err != nil {
		return rundir.Dir{}, nil, err
	}
	record.Sweep = sweepRecord(req.Job.Sweep)
	if err := dir.WriteRecord(record); err != nil {
		return rundir.Dir{}, nil, err
	}
	return dir.CreateElement(index)
}
