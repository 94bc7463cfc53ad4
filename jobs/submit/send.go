package submit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// settling is how old a submission without an answer must be before Slurm's not
// knowing its job means that there is none: a busy controller may take that long
// between the request and the job.
const settling = 30 * time.Second

// lookAgain is the pause between two questions for a job.
const lookAgain = 2 * time.Second

// send calls sbatch, and finds out what became of the job if sbatch does not say.
func (a *submission) send(ctx context.Context, sub rundir.Submission, dependencies []slurm.Dependency) (string, error) {
	environ, _ := slurm.Scrub(a.req.Environ)
	client := a.Slurm
	client.Environ = environ
	id, err := client.Submit(ctx, slurm.SubmitRequest{Script: a.dir.Script(), Dir: a.req.Base, Comment: sub.Comment(), Dependencies: dependencies})
	if err == nil {
		return id, a.keep(sub, id)
	}
	if !slurm.Uncertain(err) {
		a.record.Pending = nil
		return "", errors.Join(err, a.dir.WriteRecord(a.record))
	}
	a.Say(fmt.Sprintf("%v; looking whether Slurm has the job", err))
	patience := settling
	if slurm.Answered(err) {
		patience = 0
	}
	id, lost := a.look(ctx, sub, patience)
	switch {
	case lost != nil:
		return "", refuse("submit again when the controller answers: the job is looked for first, and never submitted twice", "%w; and %w", err, lost)
	case id == "":
		a.record.Pending = nil
		return "", errors.Join(err, a.dir.WriteRecord(a.record))
	}
	return id, a.keep(sub, id)
}

// settle finds the job of a submission that was cut short before its answer was
// kept, if there was one.
func (a *submission) settle(ctx context.Context) (*rundir.Submission, error) {
	record, err := a.dir.ReadRecord()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if record.Pending == nil {
		return nil, nil
	}
	a.record = record
	sub := *record.Pending
	a.Say(fmt.Sprintf("an earlier submission, of %s, was cut short; looking for its job", sub.Time.Local().Format(time.DateTime)))
	id, err := a.look(ctx, sub, settling)
	if err != nil {
		return nil, refuse("submit again when the controller answers", "an earlier submission from here may have made a job: %w", err)
	}
	if id == "" {
		a.record.Pending = nil
		return nil, a.dir.WriteRecord(a.record)
	}
	a.Say(fmt.Sprintf("found it: job %s", id))
	if err := a.keep(sub, id); err != nil {
		return nil, err
	}
	return a.record.Last(), nil
}

// look asks Slurm for the job of a submission until it is found, or as old as
// patience, when it is known not to be there. The id is empty then.
func (a *submission) look(ctx context.Context, sub rundir.Submission, patience time.Duration) (string, error) {
	for {
		ids, err := a.Slurm.FindByComment(ctx, sub.Comment())
		if err != nil {
			return "", err
		}
		if len(ids) > 0 {
			return ids[0], nil
		}
		if time.Since(sub.Time) >= patience {
			return "", nil
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

// keep puts a job's id into the record, and into those of a sweep's elements.
func (a *submission) keep(sub rundir.Submission, id string) error {
	sub.JobID = id
	a.record.Pending = nil
	a.record.Submissions = append(a.record.Submissions, sub)
	err := a.dir.WriteRecord(a.record)
	for _, index := range sub.Elements {
		if err != nil {
			break
		}
		err = a.keepElement(sub, index)
	}
	if err != nil {
		return refuse("end it with `scancel "+id+"`, or note its id", "job %s is submitted, but the record of its run could not be written: %w", id, err)
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
	if record.Of(sub.JobID) != nil {
		return nil // this was cut short before
	}
	record.Submissions = append(record.Submissions, sub)
	return dir.WriteRecord(record)
}
