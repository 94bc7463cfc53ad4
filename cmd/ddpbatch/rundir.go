package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// runsFolder is the folder of run directories, unless --run-dir names another place.
const runsFolder = "runs"

// runDir returns the run directory of a job: the one asked for, or else runs/NAME beside
// the job file, where all other relative paths start. Base is the folder of the job file.
//
// Earlier versions used runs/NAME in the current directory. A run of this job that is
// there is found, so that it is not silently started a second time.
func (p *program) runDir(asked string, job *jobs.Job, base string) rundir.Dir {
	if asked != "" {
		return rundir.Dir{Path: p.abs(asked)}
	}
	name := filepath.Join(runsFolder, string(job.Name))
	beside, here := rundir.Dir{Path: filepath.Join(base, name)}, rundir.Dir{Path: p.abs(name)}
	if isSameFolder(base, p.Dir) {
		return beside
	}
	record, err := here.ReadRecord()
	var damaged interface{ Hint() string }
	switch {
	case err == nil && record.Name == string(job.Name) && isSameFolder(record.Base, base):
		return here
	case errors.As(err, &damaged) && !errors.Is(err, fs.ErrNotExist):
		return here // the error names the command that repairs it
	}
	return beside
}

// warnOfRunDir warns if a job uses a run in the current directory instead of the default
// place beside the job file.
func (p *program) warnOfRunDir(dir rundir.Dir, asked string, job *jobs.Job, base string) {
	beside := filepath.Join(base, runsFolder, string(job.Name))
	if asked == "" && !isSameFolder(base, p.Dir) && dir.Path != beside {
		p.note("WARNING: the run directory is %q, which holds this run already, and not %q beside the job file; name one with --run-dir, or move the run there", dir.Path, beside)
	}
}

// isSameFolder reports whether two paths lead to one folder.
func isSameFolder(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// findDependency finds the run that a dependency of a job names, below the current
// directory or beside the job file. It returns nil for a job id that is no run's.
func (p *program) findDependency(base, name string) (*rundir.Dir, error) {
	run, err := p.findRun(name)
	if err != nil && !isSameFolder(base, p.Dir) {
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
