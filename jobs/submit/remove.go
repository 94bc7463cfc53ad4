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

// missing returns the directories of a path that do not exist, the innermost first.
func missing(path string) []string {
	var all []string
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return all
		}
		all = append(all, path)
	}
}

// removeCreated removes the run directory after a submission of which nothing has reached
// Slurm, and its parents, if this submission has created them. A run that someone has
// launched there meanwhile stays, and so does a parent that is not empty.
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
	if err := os.RemoveAll(a.dir.Path); err != nil {
		a.Say(fmt.Sprintf("WARNING: remove the run directory of a job that was not submitted: %v", err))
		return
	}
	for _, parent := range created {
		if parent != a.dir.Path && os.Remove(parent) != nil {
			return
		}
	}
}
