package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// chainLockTimeout is how long a job of a chain waits for the submission of the jobs after it.
const chainLockTimeout = 10 * time.Minute

// startChained makes the job with the given ID the last job of the run, if it is in the run's chain.
// It returns done if there is nothing to do because the run has finished. If the job before it
// failed, the chain ends: startChained returns an error with the same exit code. A job that was
// stopped or killed, or lost a node, does not end the chain.
func (p *program) startChained(ctx context.Context, dir rundir.Dir, id string) (done bool, err error) {
	record, err := dir.ReadRecord()
	if err != nil {
		return false, err
	}
	if !record.HasChain() || id == record.LastJob() {
		return false, nil
	}
	unlock, err := lockForChain(ctx, dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	if record, err = dir.ReadRecord(); err != nil {
		return false, err
	}
	if s := record.Pending; s != nil && s.Follows != "" && record.Of(id) == nil {
		// The submission was interrupted after the call of sbatch.
		s.JobID = id
		record.Add(*s)
		record.Pending = nil
	}
	previous := record.LastJob()
	if !record.StartChained(id) {
		return false, nil
	}
	state := outcome.Read(dir, previous)
	switch {
	case state.Finished(slurm.JobState{}):
		p.note("nothing to do: job %s has finished the run", previous)
		return true, nil
	case state.End != nil && state.Ended() == outcome.Failed && state.End.Exit != exitcode.Lost:
		return false, exitError{state.End.Exit, hints.Add(fmt.Errorf("the chain ends: job %s failed with exit code %d", previous, state.End.Exit),
			"fix the cause, and submit the run again")}
	}
	p.note("continuing the run after job %s", previous)
	return false, dir.WriteRecord(record)
}

// lockForChain locks the record of a run. A submission that is in progress holds the lock.
func lockForChain(ctx context.Context, dir rundir.Dir) (unlock func(), err error) {
	for end := time.Now().Add(chainLockTimeout); ; {
		if unlock, err = dir.LockSubmission(); err == nil || time.Now().After(end) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}
