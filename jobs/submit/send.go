package submit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// waits are how long this package has patience; what is zero has its default.
type waits struct {
	settling time.Duration
	orphaned time.Duration
	again    time.Duration
}

const (
	// settling is how long after an sbatch without an answer Slurm's not knowing the
	// job means that there is none: a busy controller may take that long between the
	// request and the job.
	settling = 30 * time.Second

	// orphaned is the same for a submission whose process was killed, counted from
	// the call of sbatch. sbatch may have outlived it: where the controller is full,
	// it tries 15 times, with pauses of 1 to 15 s.
	orphaned = 3 * time.Minute

	// lookAgain is the pause between two questions for a job.
	lookAgain = 2 * time.Second
)

func (w waits) orDefault() waits {
	if w.settling == 0 {
		w.settling = settling
	}
	if w.orphaned == 0 {
		w.orphaned = orphaned
	}
	if w.again == 0 {
		w.again = lookAgain
	}
	return w
}

// send calls sbatch, and finds out what became of the job if sbatch does not say.
// An sbatch that hangs is ended by the client, after a minute.
func (a *submission) send(ctx context.Context, sub rundir.Submission, dependencies []slurm.Dependency) (string, error) {
	sub.Time = rundir.NewSubmission().Time // what was prepared may have taken minutes
	a.record.Pending = &sub
	if err := a.dir.WriteRecord(a.record); err != nil {
		return "", err
	}
	a.sent = true
	environ, _ := slurm.Scrub(a.req.Environ)
	client := a.Slurm
	client.Environ = environ
	request := slurm.SubmitRequest{Script: a.dir.Script(), Dir: a.req.Base, Comment: sub.Comment(), Dependencies: dependencies}
	if len(rundir.Exposures(a.dir.Path)) > 0 {
		request.Text = a.script // others could replace the file before sbatch opens it
	}
	id, err := client.Submit(ctx, request)
	if err == nil {
		return id, a.keep(sub, id)
	}
	if !slurm.MaybeSubmitted(err) {
		lost := a.forget(sub)
		a.sent = lost != nil
		return "", errors.Join(err, lost)
	}
	a.Say(fmt.Sprintf("%v; looking whether Slurm has the job", err))
	until := time.Now()
	if !slurm.GotReply(err) {
		until = until.Add(a.waits.settling)
	}
	id, lost := a.look(ctx, sub, until)
	switch {
	case lost != nil:
		return "", hints.Errorf("submit again when the controller answers: the job is looked for first, and never submitted twice", "%w; and %w", err, lost)
	case id == "":
		if lost := a.forget(sub); lost != nil {
			return "", errors.Join(err, lost)
		}
		return "", hints.Errorf("Slurm was asked, and has no such job: see what sbatch said, and submit again", "%w", err)
	}
	return id, a.keep(sub, id)
}

// look asks Slurm for the job of a submission until it is found, or the time has
// come when it is known not to be there. The id is empty then.
func (a *submission) look(ctx context.Context, sub rundir.Submission, until time.Time) (string, error) {
	for {
		// A job that is made while the answer travels must not be missed.
		last := !time.Now().Before(until)
		ids, err := a.Slurm.FindByComment(ctx, sub.Comment())
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			return "", err
		case len(ids) > 0:
			return ids[0], nil
		case last:
			return "", nil
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(min(a.waits.again, max(time.Until(until), 0))):
		}
	}
}

// forget takes back a submission that has made no job, and its copy of the code.
func (a *submission) forget(sub rundir.Submission) error {
	a.record.Pending = nil
	if err := a.dir.WriteRecord(a.record); err != nil {
		return err
	}
	if err := os.RemoveAll(a.dir.Code(sub.ID)); err != nil {
		a.Say(fmt.Sprintf("WARNING: remove the snapshot of a submission that was refused: %v", err))
	}
	return nil
}

// keep puts a job's id into the records. Those of a sweep's elements come first:
// as long as the submission is pending, this is done again by the next one.
func (a *submission) keep(sub rundir.Submission, id string) error {
	sub.JobID = id
	var err error
	for _, index := range sub.Elements {
		if err = a.keepElement(sub, index); err != nil {
			break
		}
	}
	if err == nil {
		a.record.Pending = nil
		a.record.Submissions = append(a.record.Submissions, sub)
		err = a.dir.WriteRecord(a.record)
	}
	if err != nil {
		return hints.Errorf("end it with `scancel "+id+"`, or note its id", "job %s is submitted, but the record of its run could not be written: %w", id, err)
	}
	return nil
}

func (a *submission) keepElement(sub rundir.Submission, index int) error {
	dir := a.dir.Element(index)
	record, err := dir.ReadRecord()
	if err != nil {
		return err
	}
	sub.JobID, sub.Elements = fmt.Sprintf("%s_%d", sub.JobID, index), nil
	if spec, err := dir.ReadSpec(); err == nil {
		sub.SpecSHA256 = digest(spec) // its own, not the sweep's
	}
	if record.Of(sub.JobID) != nil {
		return nil // this was cut short before
	}
	record.Submissions = append(record.Submissions, sub)
	return dir.WriteRecord(record)
}
