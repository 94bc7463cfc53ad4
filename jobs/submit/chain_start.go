package submit

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// chainLockTimeout is how long a job of a chain waits for the submission of the jobs after it.
const chainLockTimeout = 10 * time.Minute

// StartChained makes the job with the given ID the last job of the run in dir, if it is in the run's
// chain, and returns the ID of the job before it. Previous is empty if the job is not in the chain. If
// the job before it has finished the run, StartChained returns done and changes nothing. If that job
// failed, the chain ends: StartChained returns an error with the same exit code. A job that was
// stopped or killed, or lost a node, does not end the chain. SubmitDir is the path of the directory
// that was submitted: the path of dir, or of its sweep.
func StartChained(ctx context.Context, dir rundir.Dir, submitDir, id string) (previous string, done bool, err error) {
	// Read this first: submit writes the records of the trials before the record of their sweep.
	pending, err := pendingLink(dir, submitDir, id)
	if err != nil {
		return "", false, err
	}
	record, err := dir.ReadRecord()
	if err != nil {
		return "", false, err
	}
	if !record.HasChain() && pending == nil || id == record.LastJob() {
		return "", false, nil
	}
	unlock, err := dir.WaitLockSubmission(ctx, chainLockTimeout)
	if err != nil {
		return "", false, err
	}
	defer unlock()
	if record, err = dir.ReadRecord(); err != nil {
		return "", false, err
	}
	if pending == nil && record.Pending != nil && record.Pending.Follows != "" {
		pending = record.Pending
	}
	if s := pending; s != nil && record.Of(id) == nil {
		// The submission was interrupted after the call of sbatch.
		s.JobID = id
		record.Add(*s)
		record.Pending = nil
	}
	previous = record.LastJob()
	if !record.StartChained(id) {
		return "", false, nil
	}
	state := outcome.Read(dir, previous)
	switch {
	case state.Finished(slurm.JobState{}):
		return previous, true, nil
	case state.End != nil && state.Ended() == outcome.Failed && state.End.Exit != exitcode.Lost:
		return "", false, exitcode.Add(state.End.Exit, hints.Errorf("fix the cause, and submit the run again",
			"the chain ends: job %s failed with exit code %d", previous, state.End.Exit))
	}
	return previous, false, dir.WriteRecord(record)
}

// pendingLink returns the task of a trial in a job array of a chain whose submission is not complete.
// It returns nil for other runs.
func pendingLink(dir rundir.Dir, submitDir, id string) (*rundir.Submission, error) {
	if !dir.IsElement() || submitDir == dir.Path {
		return nil, nil
	}
	sweep, _, release, err := dir.OpenSweep()
	if err != nil {
		return nil, err
	}
	defer release()
	record, err := sweep.ReadRecord()
	if err != nil {
		return nil, err
	}
	s := record.Pending
	array, task, _ := strings.Cut(id, "_")
	if s == nil || s.Follows == "" || record.Of(array) != nil || !slices.ContainsFunc(s.Elements, func(i int) bool { return strconv.Itoa(i) == task }) {
		return nil, nil
	}
	s.Follows, s.Elements = s.Follows+"_"+task, nil
	return s, nil
}
