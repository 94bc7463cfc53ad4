package submit

import (
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// Finished says whether the run in a directory has done all that its job asks for:
// by its last checkpoint, by its launcher's last word, or by what Slurm tells of
// its last job, which may be nothing. What the launcher of an earlier job has said
// does not count where the last one's id is known.
func Finished(dir rundir.Dir, last slurm.JobState) bool {
	if entries, err := checkpoint.List(dir.Checkpoints()); err == nil && len(entries) > 0 {
		return entries[0].Manifest != nil && entries[0].Manifest.Finished
	}
	if end, ok := dir.ReadEnd(); ok && (end.JobID == last.ID || end.JobID == "" || last.ID == "") {
		return end.Exit == 0
	}
	return last.Succeeded()
}
