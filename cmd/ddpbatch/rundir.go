package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// runsFolder is the default parent directory of run directories.
const runsFolder = "runs"

// runDir returns the run directory of a job: the directory in --run-dir, or runs/NAME in the
// current directory. Base is the directory of the job file.
//
// If that directory is not a run of the job, runDir also searches for runs/NAME in the
// directory of the job file and in its parents. Otherwise, the same command in a different
// directory would silently start a second run.
func (p *program) runDir(asked string, job *jobs.Job, base string) rundir.Dir {
	if asked != "" {
		return rundir.Dir{Path: p.abs(asked)}
	}
	name := filepath.Join(runsFolder, string(job.Name))
	here := rundir.Dir{Path: p.abs(name)}
	if holdsRun(here, job, base) {
		return here
	}
	// Do not search directories of other users: /home, for example, can be an automount point.
	for folder := base; isOwn(folder) || folder == base; folder = filepath.Dir(folder) {
		if dir := (rundir.Dir{Path: filepath.Join(folder, name)}); isOwn(dir.Path) && holdsRun(dir, job, base) {
			return dir
		}
		if folder == filepath.Dir(folder) {
			break
		}
	}
	return here
}

// holdsRun reports whether dir contains a run of the job, or a run with a corrupt record. The
// error of a corrupt record names the command that repairs it.
func holdsRun(dir rundir.Dir, job *jobs.Job, base string) bool {
	record, err := dir.ReadRecord()
	if err != nil {
		return hints.Of(err) != "" && !errors.Is(err, fs.ErrNotExist)
	}
	return record.Name == string(job.Name) && isSameDir(record.Base, base)
}

// warnOfRunDir warns if a job uses a run outside of the default directory.
func (p *program) warnOfRunDir(dir rundir.Dir, asked string, job *jobs.Job) {
	here := p.abs(filepath.Join(runsFolder, string(job.Name)))
	if asked == "" && !isSameDir(dir.Path, here) && dir.Path != here {
		p.note("warning: using the existing run of this job file in %q instead of a new run in %q; use --run-dir to select one", dir.Path, here)
	}
}

// exposures returns warnings about directories in which every user can replace a run
// directory. Directories that a group or another user can change are common in shared
// projects. Therefore, exposures reports only the innermost of them, and only if members is
// set and no other warning applies.
func exposures(dir rundir.Dir, members bool) (texts []string) {
	all := rundir.Exposures(dir.Path)
	text := func(e rundir.Exposure) string {
		return fmt.Sprintf("run directory %q is not protected: %s; %s", dir.Path, e, e.Hint())
	}
	for _, e := range all {
		if e.Anyone {
			texts = append(texts, text(e))
		}
	}
	if members && len(texts) == 0 && len(all) > 0 {
		texts = append(texts, text(all[len(all)-1]))
	}
	return texts
}

// warnOfExposure prints the warnings of [exposures].
func (p *program) warnOfExposure(dir rundir.Dir, members bool) {
	for _, text := range exposures(dir, members) {
		p.note("warning: %s", text)
	}
}

// isOwn reports whether the file at path belongs to this user.
func isOwn(path string) bool {
	info, err := os.Stat(path)
	return err == nil && isOwnFile(info)
}

// isOwnEntry is like isOwn, but a symbolic link must also belong to the user, like the file
// that it points to.
func isOwnEntry(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && isOwnFile(info) && isOwn(path)
}

// entryExists reports whether an entry of any type exists at path.
func entryExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isOwnFile(info fs.FileInfo) bool {
	uid, ok := safefile.Owner(info)
	return ok && uid == os.Geteuid()
}

// isSameDir reports whether two paths name the same directory.
func isSameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// findDependency returns the run that a dependency names. It searches from the current
// directory, and then from the directory of the job file. It returns nil for a job ID that
// belongs to no known run.
func (p *program) findDependency(base, name string) (*rundir.Dir, error) {
	run, err := p.findRun(name)
	if err != nil && !isSameDir(base, p.Dir) {
		beside := *p
		beside.Dir = base
		if found, e := beside.findRun(name); e == nil {
			run, err = found, nil
		}
	}
	if err == nil {
		return &run.dir, nil
	}
	if jobIDForm.MatchString(name) {
		return nil, nil
	}
	return nil, err
}
