package submit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// Request is what to submit.
type Request struct {
	Job  *jobs.Job // with what its site fills in; paths as in the file
	Site *sites.Profile
	Base string // folder of the job file
	Spec []byte // a job file that says what Job does
	Dir  string // path of the run directory

	// Elements of a sweep to submit, in rising order; nil for all that are not
	// done. Failed leaves alone what is queued, running or was never submitted.
	Elements []int
	Failed   bool

	// Script renders the batch script for the run directory and, of a sweep, for
	// the elements.
	Script func(dir rundir.Dir, elements []int) ([]byte, error)

	// Find finds the run that a dependency names. It returns nil for the id of a
	// job that was not submitted by this program.
	Find func(run string) (*rundir.Dir, error)

	Version, Program string   // of this program, and its digest
	Host, User       string   // who submits from where, for the record
	Environ          []string // of the user; the job gets what [slurm.Scrub] leaves of it
}

// Result is what became of it.
type Result struct {
	JobID    string // empty where there was nothing to submit
	Dir      rundir.Dir
	Elements []int // of a sweep: those that were submitted
	// Found says that the job is that of an earlier submission of the same thing,
	// whose answer was lost.
	Found bool
}

// Submitter submits.
type Submitter struct {
	Slurm slurm.Client
	// Say is given what a person should know, a line at a time.
	Say func(line string)

	waits waits
}

// Submit submits the run, or the sweep. If nothing reaches Slurm, it removes the run
// directory if it has created it.
func (s Submitter) Submit(ctx context.Context, req Request) (Result, error) {
	created := missing(req.Dir)
	dir, err := rundir.Create(req.Dir)
	if err != nil {
		return Result{}, err
	}
	dir, release, err := dir.Hold()
	if err != nil {
		return Result{}, err
	}
	defer release()
	unlock, err := dir.LockSubmission()
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	s.waits = s.waits.orDefault()
	a := &submission{Submitter: s, req: req, dir: dir}
	r, err := a.run(ctx)
	if err != nil && !a.sent {
		a.removeCreated(created)
	}
	if err == nil {
		r.Dir = rundir.Dir{Path: dir.Path} // it is no longer held
	}
	return r, err
}

// submission is one call of Submit.
type submission struct {
	Submitter
	req      Request
	dir      rundir.Dir
	elements []int
	record   rundir.Record
	script   []byte // the batch script
	sent     bool   // Slurm may have the job
}

func (a *submission) run(ctx context.Context) (Result, error) {
	found, err := a.settle(ctx)
	if err != nil {
		return Result{}, err
	}
	if found != nil && found.SpecSHA256 != digest(a.req.Spec) {
		found = nil // it was of something else
	}
	if err := Same(a.dir, a.req.Job.Sweep); err != nil {
		return Result{}, err
	}
	if a.req.Job.Sweep != nil {
		done, err := a.chooseElements(ctx, found)
		if err != nil {
			return Result{}, err
		}
		if done && found == nil {
			return Result{Dir: a.dir}, nil
		}
		if done {
			return Result{JobID: found.JobID, Dir: a.dir, Elements: found.Elements, Found: true}, nil
		}
	} else if found != nil {
		return Result{JobID: found.JobID, Dir: a.dir, Found: true}, nil
	} else if err := InUse(ctx, a.Slurm, a.dir); err != nil {
		return Result{}, err
	}
	dependencies, err := a.dependencies(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := a.idle(ctx); err != nil {
		return Result{}, err
	}
	sub := rundir.NewSubmission()
	if err := a.prepare(ctx, &sub); err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	// From here to the record an interrupt has to wait: the job would be lost.
	id, err := a.send(context.WithoutCancel(ctx), sub, dependencies)
	if err != nil {
		return Result{}, err
	}
	return Result{JobID: id, Dir: a.dir, Elements: a.elements}, nil
}

// idle refuses a directory in which a launcher is at work without Slurm. The lock
// is not kept: the job's own launcher needs it, maybe at once.
func (a *submission) idle(ctx context.Context) error {
	unlock, err := a.dir.Lock(rundir.Claim{Ended: Ended(ctx, a.Slurm)})
	if err != nil {
		return err
	}
	unlock()
	return nil
}

// prepare puts into the run directory what the job will run.
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
	if sub.Code, err = a.code(ctx, sub.ID); err != nil {
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
		sub.Slurm = release // only to know how to ask later
	}
	sub.Host, sub.User, sub.Version, sub.ProgramSHA256 = req.Host, req.User, req.Version, req.Program
	sub.SpecSHA256, sub.ScriptSHA256, sub.Site, sub.Elements = digest(req.Spec), digest(script), req.Site.Name(), a.elements
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// InUse refuses a run whose last job Slurm still has, also one whose submission was
// cut short: two jobs would write into one directory. Without a record it is the
// first submission; one that is damaged is told by what comes next.
func InUse(ctx context.Context, client slurm.Client, dir rundir.Dir) error {
	record, err := dir.ReadRecord()
	if err != nil {
		return nil
	}
	id := record.LastJob()
	if record.Pending != nil {
		found, err := client.FindByComment(ctx, record.Pending.Comment())
		if err != nil {
			return fmt.Errorf("ask whether there is a job of a submission from here that was cut short: %w", err)
		}
		if len(found) > 0 {
			id = found[0]
		}
	}
	if id == "" {
		return nil
	}
	states, err := client.State(ctx, id)
	if err != nil {
		return fmt.Errorf("ask whether job %s, which was submitted from here before, is done: %w", id, err)
	}
	if s := states[0]; active(s) {
		return hints.Errorf(fmt.Sprintf("wait for it, end it with `ddpbatch cancel %s`, or give this run its own --run-dir", id),
			"run directory %q is in use by job %s, which is %s", dir.Path, id, s)
	}
	return nil
}

// Ended asks whether a job is over, for [rundir.Claim].
func Ended(ctx context.Context, client slurm.Client) func(job string) (bool, error) {
	return func(job string) (bool, error) {
		states, err := client.State(ctx, job)
		if err != nil {
			return false, err
		}
		return !active(states[0]), nil
	}
}
