package submit

import (
	"context"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// IsFinished reports whether the run in dir has finished, as package outcome defines it, and its
// newest checkpoint is valid. A run with a corrupt checkpoint must be resumed. Finished reads
// the whole checkpoint. If ctx ends, the error is its cause.
func IsFinished(ctx context.Context, dir rundir.Dir, last slurm.JobState) (bool, error) {
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
