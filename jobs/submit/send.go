package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// timeouts holds the timeouts of this package and the interval between two queries. A zero field
// means the default: replyTimeout, orphanTimeout, or pollInterval.
type timeouts struct {
	reply  time.Duration
	orphan time.Duration
	poll   time.Duration
}

const (
	// replyTimeout applies if sbatch did not reply. If Slurm does not have the job after this
	// time, the job does not exist. A busy controller may need this long between the request
	// and the job.
	replyTimeout = 30 * time.Second

	// orphanTimeout is the corresponding time for a submission whose process was killed, from the
	// call of sbatch. sbatch may outlive the process. If the controller is full, sbatch tries
	// 15 times, with pauses of 1 to 15 s.
	orphanTimeout = 3 * time.Minute

	// elementLockTimeout is how long to wait for the record of a trial that starts.
	elementLockTimeout = time.Minute

	// pollInterval is the interval between two queries for a job.
	pollInterval = 2 * time.Second
)

func (w timeouts) withDefaults() timeouts {
	return timeouts{cmp.Or(w.reply, replyTimeout), cmp.Or(w.orphan, orphanTimeout), cmp.Or(w.poll, pollInterval)}
}

// send calls sbatch and returns the job ID. If sbatch does not report the ID, send queries
// Slurm for the job. The Slurm client kills an sbatch that hangs for a minute.
func (a *submission) send(ctx context.Context, sub rundir.Submission, dependencies []slurm.Dependency) (string, error) {
	sub.Time = rundir.NewSubmission().Time // the preparation may have taken minutes
	a.record.Pending = &sub
	if err := a.dir.WriteRecord(a.record); err != nil {
		return "", err
	}
	a.sent = true
	environ, _ := slurm.Scrub(a.req.Environ)
	client := a.Slurm
	client.Environ = environ
	request := slurm.SubmitRequest{Script: a.dir.Script(), Dir: a.req.Base, Comment: sub.Comment(), Note: string(a.req.Job.Slurm.Comment), Dependencies: dependencies}
	if a.dir.IsExposed() {
		request.Text = a.script // other users could replace the file before sbatch opens it
	}
	id, err := client.Submit(ctx, request)
	if err == nil {
		return id, a.recordJobID(sub, id)
	}
	if !slurm.MaybeSubmitted(err) {
		lost := a.dropPending(sub)
		a.sent = lost != nil
		return "", errors.Join(err, lost)
	}
	a.Say(fmt.Sprintf("%v; checking whether Slurm has the job", err))
	until := time.Now()
	if !slurm.GotReply(err) {
		until = until.Add(a.timeouts.reply)
	}
	id, lost := a.waitForJob(ctx, sub, until)
	switch {
	case lost != nil:
		return "", hints.Errorf("submit again when the controller responds; the job is never submitted twice", "%w; and %w", err, lost)
	case id == "":
		if lost := a.dropPending(sub); lost != nil {
			return "", errors.Join(err, lost)
		}
		return "", hints.Errorf("Slurm has no such job: check the message of sbatch, and submit again", "%w", err)
	}
	return id, a.recordJobID(sub, id)
}

// waitForJob queries Slurm for the job of a submission until it finds the job, until a query fails,
// or until the given time. If it does not find the job by then, the ID is empty.
func (a *submission) waitForJob(ctx context.Context, sub rundir.Submission, until time.Time) (string, error) {
	for {
		// Read the clock before the query, so that the last query starts after until.
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
		case <-time.After(min(a.timeouts.poll, max(time.Until(until), 0))):
		}
	}
}

// dropPending removes a submission that created no job, with its copy of the code.
func (a *submission) dropPending(sub rundir.Submission) error {
	a.record.Pending = nil
	if err := a.dir.WriteRecord(a.record); err != nil {
		return err
	}
	if err := a.dir.RemoveCode(sub.ID); err != nil {
		a.Say(fmt.Sprintf("warning: remove snapshot of rejected submission: %v", err))
	}
	return nil
}

// recordJobID stores the job ID in the records. It updates the records of a sweep's trials first:
// while the submission is pending, the next submission repeats the update.
func (a *submission) recordJobID(sub rundir.Submission, id string) error {
	sub.JobID = id
	var err error
	for _, index := range sub.Elements {
		if err = a.recordElementJobID(sub, index); err != nil {
			break
		}
	}
	if err == nil {
		a.record.Pending = nil
		a.record.Add(sub)
		err = a.dir.WriteRecord(a.record)
	}
	if err != nil {
		return hints.Errorf("cancel it with `scancel "+id+"`, or note its ID", "job %s is submitted, but its record was not written: %w", id, err)
	}
	return nil
}

func (a *submission) recordElementJobID(sub rundir.Submission, index int) error {
	dir := a.dir.Element(index)
	if sub.Follows != "" {
		// An earlier job of the chain may start meanwhile and also change the record.
		unlock, err := dir.WaitLockSubmission(context.Background(), elementLockTimeout)
		if err != nil {
			return err
		}
		defer unlock()
		sub.Follows = fmt.Sprintf("%s_%d", sub.Follows, index)
	}
	record, err := dir.ReadRecord()
	if err != nil {
		return err
	}
	sub.JobID, sub.Elements = fmt.Sprintf("%s_%d", sub.JobID, index), nil
	if spec, err := dir.ReadSpec(); err == nil {
		sub.SpecSHA256 = rundir.Digest(spec) // digest of the trial's job file, not of the sweep's
	}
	if record.Of(sub.JobID) != nil {
		return nil // already stored before an interruption
	}
	record.Add(sub)
	return dir.WriteRecord(record)
}
