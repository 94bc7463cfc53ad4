package submit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// recoverPending finds the job of an interrupted submission and stores its ID. It returns nil if
// there is no such submission or if it created no job.
func (a *submission) recoverPending(ctx context.Context) (*rundir.Submission, error) {
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
	a.Say(fmt.Sprintf("the submission at %s was interrupted; looking up its job", sub.Time.Local().Format(time.DateTime)))
	id := a.recordedJobID(sub)
	if id == "" {
		id, err = a.waitForJob(ctx, sub, earlier(sub.Time, time.Now()).Add(a.timeouts.orphan))
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, hints.Errorf("submit again when the controller responds", "find job of interrupted submission: %w", err)
	}
	if id == "" {
		id = a.endedJobID(sub)
	}
	if id == "" {
		return nil, a.dropPending(sub)
	}
	a.Say(fmt.Sprintf("found job %s", id))
	if err := a.recordJobID(sub, id); err != nil {
		return nil, err
	}
	return a.record.Last(), nil
}

// RecoverPending finds the job of an interrupted submission, for commands that need the run's last
// job. It queries Slurm once. It returns an error if it does not find the job, because the job
// may still appear.
func (s Submitter) RecoverPending(ctx context.Context, dir rundir.Dir) error {
	if record, err := dir.ReadRecord(); err != nil || record.Pending == nil {
		return err
	}
	unlock, err := dir.LockSubmission()
	if err != nil {
		return err
	}
	defer unlock()
	record, err := dir.ReadRecord() // again: another process may have found the job in the meantime
	if err != nil || record.Pending == nil {
		return err
	}
	a := &submission{Submitter: s, dir: dir, record: record}
	sub := *record.Pending
	id := a.recordedJobID(sub)
	if id == "" {
		if id, err = findPending(ctx, s.Slurm, sub); err != nil {
			return err
		}
	}
	if id == "" {
		id = a.endedJobID(sub)
	}
	if id == "" {
		return hints.Errorf("submit it again; the job is never submitted twice",
			"the last submission of run %q was interrupted, and Slurm does not list its job", dir.Path)
	}
	s.Say(fmt.Sprintf("the last submission of %s was interrupted; its job is %s", record.Name, id))
	return a.recordJobID(sub, id)
}

// findPending returns the job that Slurm lists for an interrupted submission, or an empty string.
func findPending(ctx context.Context, client slurm.Client, sub rundir.Submission) (id string, err error) {
	found, err := client.FindByComment(ctx, sub.Comment())
	if err != nil {
		return "", fmt.Errorf("find job of interrupted submission: %w", err)
	}
	if len(found) > 0 {
		id = found[0]
	}
	return id, nil
}

// earlier returns the earlier of two times. The clock of the host that submitted earlier may
// be ahead of this host's clock.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// recordedJobID returns the job ID from the record of a trial that already has it, or an empty
// string.
func (a *submission) recordedJobID(sub rundir.Submission) string {
	for _, index := range sub.Elements {
		record, err := a.dir.Element(index).ReadRecord()
		if err != nil {
			continue
		}
		for _, s := range slices.Concat([]rundir.Submission(record.Submissions), record.Chain) {
			if s.ID == sub.ID {
				return arrayJobID(s.JobID)
			}
		}
	}
	return ""
}

// endedJobID returns the ID of a job that ended since the submission and that no stored submission
// has, or an empty string. It uses ended.json because the controller forgets a job five
// minutes after its end.
func (a *submission) endedJobID(sub rundir.Submission) string {
	dirs := []rundir.Dir{a.dir}
	if sub.Elements != nil {
		dirs = nil
		for _, index := range sub.Elements {
			dirs = append(dirs, a.dir.Element(index))
		}
	}
	for _, dir := range dirs {
		end, ok := dir.ReadEnd()
		if !ok || end.JobID == "" || end.Time.Before(sub.Time) {
			continue
		}
		if id := arrayJobID(end.JobID); a.record.Of(id) == nil {
			return id
		}
	}
	return ""
}

// arrayJobID returns the ID of an array task's array job, such as "18" for "18_3". It returns
// other IDs unchanged.
func arrayJobID(jobID string) string {
	array, _, _ := strings.Cut(jobID, "_")
	return array
}
