package submit

import (
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// Finished reports whether the run in dir has finished, as package outcome defines it, and
// whether its newest checkpoint verifies: a corrupt one has to be trained again. It reads
// all of that checkpoint.
func Finished(dir rundir.Dir, last slurm.JobState) bool {
	s := outcome.Read(dir, last.ID)
	e := s.Result()
	return s.Finished(last) && (e == nil || checkpoint.Verify(e.Path) == nil)
}
