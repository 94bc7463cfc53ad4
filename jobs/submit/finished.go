package submit

import (
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// Finished says whether the run in a directory has done all that its job asks for, as
// [SaysFinished] does, and that what it leaves is whole: a last checkpoint that does not
// verify has to be trained again. It reads all of that checkpoint.
func Finished(dir rundir.Dir, last slurm.JobState) bool {
	if !SaysFinished(dir, last) {
		return false
	}
	entries, err := checkpoint.List(dir.Checkpoints())
	return err == nil && (len(entries) == 0 || checkpoint.Verify(entries[0].Path) == nil)
}

// SaysFinished says whether a run has done all that its job asks for: by what its last
// checkpoint says of itself, by its launcher's last word, or by what Slurm tells of
// its last job, which may be nothing. What the launcher of an earlier job has said
// does not count where the last one's id is known.
func SaysFinished(dir rundir.Dir, last slurm.JobState) bool {
	if newest, ok, err := checkpoint.Newest(dir.Checkpoints()); err == nil && ok {
		return newest.Manifest != nil && newest.Manifest.Finished
	}
	if end, ok := dir.ReadEnd(); ok && (end.JobID == last.ID || end.JobID == "" || last.ID == "") {
		return end.Exit == 0
	}
	return last.Succeeded()
}
