// Package submit submits a run, or the trials of a sweep, to Slurm exactly once.
//
// The package guarantees the following:
//   - One submission creates at most one job, even if sbatch, its reply, or this process
//     fails. The submission ID is in the run directory before the call of sbatch, and in the
//     job's comment. The package queries Slurm for this comment before it submits again.
//   - It rejects a run whose job is queued or running.
//   - The job runs what was submitted. The run directory contains the job file, the site
//     profile, the batch script, and, on request, the user's code. The record contains the
//     digest of the ddpbatch executable.
//
// It also submits only the failed trials of a sweep, chains of jobs that continue a run, and
// dependencies on other runs. [StartChained] records the start of a job of a chain.
// [CheckResume] compares a job with the newest checkpoint in its run directory before a submission.
// [PrepareLaunch] and [CreateTrial] prepare the run directory of a job that is launched without a
// submission. [Submitter.Repair] rebuilds a corrupt record.
//
// The package does not parse job files, render the batch script ([Request].Script does), print,
// wait for the job, or start ranks.
package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// A Request describes a submission.
type Request struct {
	Job  *jobs.Job // with the values of its site; paths as in the file
	Site *sites.Profile
	Base string // directory of the job file
	Spec []byte // job file equivalent to Job
	Dir  string // path of the run directory

	// Elements are the trials of a sweep to submit, in ascending order; nil for all that are
	// not finished. Failed skips trials that are queued, running, or were never submitted.
	Elements []int
	Failed   bool

	// Chain is the number of jobs of a chain; 0 or 1 for a single job. Each job starts after the
	// end of the one before it, and continues the run.
	Chain int

	// Script renders the batch script for the run directory and, for a sweep, its trials.
	Script func(dir rundir.Dir, elements []int) ([]byte, error)

	// Find returns the run that a dependency names. It returns nil for the ID of a job that
	// ddpbatch did not submit.
	Find func(run string) (*rundir.Dir, error)

	Version, Program string   // version of ddpbatch and digest of its executable
	Host, User       string   // submitting host and user, for the record
	Environ          []string // user's environment; the job gets the variables that [slurm.Scrub] keeps
}

// A Result is the result of a submission.
type Result struct {
	JobID    string   // empty if there was nothing to submit
	Chain    []string // the jobs that follow JobID in a chain
	Dir      rundir.Dir
	Elements []int // submitted trials of a sweep
	// Found reports that an earlier submission of the same job file, whose reply was lost,
	// created the job.
	Found bool
}

// A Submitter submits runs to Slurm.
type Submitter struct {
	Slurm slurm.Client
	// Say receives messages for the user, one line at a time.
	Say func(line string)

	timeouts timeouts
}

// Submit submits a run or a sweep. If nothing reaches Slurm, Submit removes the run directory
// if it created it.
func (s Submitter) Submit(ctx context.Context, req Request) (Result, error) {
	created := missingDirs(req.Dir)
	dir, err := rundir.Create(req.Dir)
	if err != nil {
		return Result{}, err
	}
	dir, release, err := dir.Hold()
	if err != nil {
		return Result{}, err
	}
	defer release()
	return s.submitIn(ctx, req, dir, created)
}

// submitIn submits a run from a held directory. The directories in created did not exist before.
func (s Submitter) submitIn(ctx context.Context, req Request, dir rundir.Dir, created []string) (Result, error) {
	// Between its creation and Hold, another user may have put a different directory of this user at
	// its path, whose files must stay.
	isNew := dir.IsEmpty()
	unlock, err := dir.LockSubmission()
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	s.timeouts = s.timeouts.withDefaults()
	a := &submission{Submitter: s, req: req, dir: dir}
	r, err := a.run(ctx)
	if err != nil && !a.sent && isNew {
		a.removeCreated(created)
	}
	if err == nil {
		r.Dir = rundir.Dir{Path: dir.Path} // it is no longer held
	}
	return r, err
}

// A submission is the state of one call of Submit.
type submission struct {
	Submitter
	req      Request
	dir      rundir.Dir
	elements []int
	record   rundir.Record
	script   []byte // the batch script
	sent     bool   // whether Slurm may have the job
}

func (a *submission) run(ctx context.Context) (Result, error) {
	found, err := a.recoverPending(ctx)
	if err != nil {
		return Result{}, err
	}
	if found != nil && found.SpecSHA256 != rundir.Digest(a.req.Spec) {
		found = nil // it was for a different job file
	}
	if err := CheckResumable(a.dir, a.req.Job.Sweep); err != nil {
		return Result{}, err
	}
	done := found != nil
	if a.req.Job.Sweep != nil {
		if done, err = a.chooseElements(ctx, found); err != nil {
			return Result{}, err
		}
		if done && found == nil {
			return Result{Dir: a.dir}, nil
		}
	} else if found == nil {
		if err := CheckNotInUse(ctx, a.Slurm, a.dir); err != nil {
			return Result{}, err
		}
	}
	if found != nil {
		chain, err := a.completeChain(ctx, *found)
		if err != nil || done {
			return Result{JobID: found.JobID, Chain: chain, Dir: a.dir, Elements: found.Elements, Found: true}, err
		}
	}
	dependencies, err := a.dependencies(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := a.checkNoLauncher(ctx); err != nil {
		return Result{}, err
	}
	sub := rundir.NewSubmission()
	if err := a.prepare(ctx, &sub); err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	// Ignore interrupts until the record is written. Otherwise, the job ID could be lost.
	id, err := a.send(context.WithoutCancel(ctx), sub, dependencies)
	if err != nil {
		return Result{}, err
	}
	sub.JobID = id
	chain, err := a.sendChain(ctx, sub)
	return Result{JobID: id, Chain: chain, Dir: a.dir, Elements: a.elements}, err
}

// checkNoLauncher returns an error if a launcher is running in the directory without Slurm. It
// releases the lock immediately, because the job's own launcher may need it soon.
func (a *submission) checkNoLauncher(ctx context.Context) error {
	unlock, err := a.dir.Lock(rundir.Claim{Ended: QueryEnded(ctx, a.Slurm)})
	if err != nil {
		return err
	}
	unlock()
	return nil
}

// prepare writes everything that the job needs into the run directory.
func (a *submission) prepare(ctx context.Context, sub *rundir.Submission) (err error) {
	req := a.req
	if a.record, err = a.dir.Prepare(string(req.Job.Name), req.Base, req.Version, req.Spec); err != nil {
		return err
	}
	if err := a.dir.WriteSite(req.Site.Source()); err != nil {
		return err
	}
	if err := a.prepareElements(); err != nil {
		return err
	}
	if sub.Code, err = a.recordCode(ctx, sub.ID); err != nil {
		return err
	}
	script, err := req.Script(a.dir, a.elements)
	if err != nil {
		return err
	}
	if err := a.dir.WriteScript(script); err != nil {
		return err
	}
	a.script = script
	if release, err := a.Slurm.Version(ctx); err == nil {
		sub.Slurm = release // only helps to interpret later queries
	}
	sub.Host, sub.User, sub.Version, sub.ProgramSHA256 = req.Host, req.User, req.Version, req.Program
	sub.SpecSHA256, sub.ScriptSHA256, sub.Site, sub.Elements = rundir.Digest(req.Spec), rundir.Digest(script), req.Site.Name(), a.elements
	return nil
}

// CheckNotInUse returns an error if the run's last job, or a job of its chain, is queued or running,
// because two jobs would write into one directory. It also finds the job of an interrupted
// submission. A missing record means that this is the first submission. Later steps report a corrupt
// record.
func CheckNotInUse(ctx context.Context, client slurm.Client, dir rundir.Dir) error {
	record, err := dir.ReadRecord()
	if err != nil {
		return nil
	}
	id := record.LastJob()
	if record.Pending != nil {
		found, err := findPending(ctx, client, *record.Pending)
		if err != nil {
			return err
		}
		id = cmp.Or(found, id)
	}
	if id == "" {
		return nil
	}
	ids := []string{id}
	for _, s := range record.Chain {
		ids = append(ids, s.JobID)
	}
	states, err := client.State(ctx, ids...)
	if err != nil {
		return fmt.Errorf("query state of previous job %s: %w", id, err)
	}
	if i := slices.IndexFunc(states, isActive); i >= 0 {
		s := states[i]
		id := ids[i]
		return hints.Errorf(fmt.Sprintf("wait for it, cancel it with `ddpbatch cancel %s`, or use a different --run-dir", id),
			"run directory %q is in use by job %s, which is %s", dir.Path, id, s)
	}
	return nil
}

// QueryEnded returns a function that queries Slurm whether a job has ended, for [rundir.Claim].
func QueryEnded(ctx context.Context, client slurm.Client) func(job string) (bool, error) {
	return func(job string) (bool, error) {
		states, err := client.State(ctx, job)
		if err != nil {
			return false, err
		}
		return !isActive(states[0]), nil
	}
}

// isFinished reports whether the run in dir has finished, as package outcome defines it, and its
// newest checkpoint is valid. A run with a corrupt checkpoint must be resumed. isFinished reads
// the whole checkpoint. If ctx ends, the error is its cause.
func isFinished(ctx context.Context, dir rundir.Dir, last slurm.JobState) (bool, error) {
	s := outcome.Read(dir, last.ID)
	if !s.Finished(last) {
		return false, nil
	}
	e := s.Result()
	if e == nil {
		return true, nil
	}
	err := checkpoint.Verify(ctx, e.Path)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil, nil
}

// missingDirs returns the directories of path that do not exist, innermost first.
func missingDirs(path string) []string {
	var all []string
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return all
		}
		all = append(all, path)
	}
}

// removeCreated removes the run directory and its parents if this submission created them. It
// is for submissions of which nothing reached Slurm. It keeps a run that was launched in the
// directory meanwhile, and parents that are not empty.
func (a *submission) removeCreated(created []string) {
	if !slices.Contains(created, a.dir.Path) || a.dir.CheckPlace() != nil {
		return
	}
	unlock, err := a.dir.Lock(rundir.Claim{})
	if err != nil {
		return
	}
	defer unlock()
	record, err := a.dir.ReadRecord()
	used := err == nil && (len(record.Submissions) > 0 || record.Pending != nil)
	if s := outcome.Read(a.dir, ""); used || s.Newest != nil || s.End != nil || len(s.Attempts) > 0 {
		return
	}
	if err := a.dir.Remove(); err != nil {
		a.Say(fmt.Sprintf("warning: remove the run directory of a job that was not submitted: %v", err))
		return
	}
	for _, parent := range created {
		if parent != a.dir.Path && unix.Rmdir(parent) != nil {
			return
		}
	}
}
