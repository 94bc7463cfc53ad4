package submit

import (
	"context"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// Finished reports whether the run in dir has finished, as package outcome defines it, and
// whether its newest checkpoint verifies: a corrupt one has to be trained again. It reads
// all of that checkpoint. The error is the cause of a context that has ended.
func Finished(ctx context.Context, dir rundir.Dir, last slurm.JobState) (bool, error) {
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
