package submit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// missingDirs returns the directories of path that do not exist, innermost first.
func missingDirs(path string) []string {
	var all []string
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return all
		}
		all = append(all, path)
	}
}

// removeCreated removes the run directory and its parents if this submission created them. It
// is for submissions of which nothing reached Slurm. It keeps a run that was launched in the
// directory meanwhile, and parents that are not empty.
func (a *submission) removeCreated(created []string) {
	if !slices.Contains(created, a.dir.Path) || a.dir.CheckPlace() != nil {
		return
	}
	unlock, err := a.dir.Lock(rundir.Claim{})
	if err != nil {
		return
	}
	defer unlock()
	record, err := a.dir.ReadRecord()
	used := err == nil && (len(record.Submissions) > 0 || record.Pending != nil)
	if s := outcome.Read(a.dir, ""); used || s.Newest != nil || s.End != nil || len(s.Attempts) > 0 {
		return
	}
	if err := a.dir.Remove(); err != nil {
		a.Say(fmt.Sprintf("WARNING: remove the run directory of a job that was not submitted: %v", err))
		return
	}
	for _, parent := range created {
		if parent != a.dir.Path && os.Remove(parent) != nil {
			return
		}
	}
}
