package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
)

// knownRun is a run directory and what it says of itself.
type knownRun struct {
	dir    rundir.Dir
	record rundir.Record
}

// jobIDForm is the id of a job, or of an element of a job array.
var jobIDForm = regexp.MustCompile(`^[0-9]+(_[0-9]+)?$`)

// findRun finds the run that an argument names: a run directory, a job file
// (which stands for its default directory), the id of a job that was submitted
// from a directory below runs/, or the name of such a directory. A sweep's element
// is the directory, the id "18_3", or the sweep's name, a slash and the number.
func (p *program) findRun(arg string) (knownRun, error) {
	if arg == "" { // a variable that is not set: not the current directory
		return knownRun{}, usage("the name of the run is empty")
	}
	path, named := p.abs(arg), p.abs(filepath.Join(runsFolder, arg))
	if isRun(named) && !isRun(path) && !strings.HasSuffix(arg, ".toml") {
		// Code and data are often in a file or folder of the same name.
		return openRun(named)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		// A directory there that cannot be opened as a run explains more than its absence here.
		if _, err := os.Lstat(named); err == nil {
			return openRun(named)
		}
	}
	switch {
	case err == nil && info.IsDir():
		return openRun(path)
	case err == nil:
		job, err := readJob(arg)
		if err != nil {
			return knownRun{}, exitError{exitUsage, err}
		}
		return openRun(p.runDir("", job, filepath.Dir(path)).Path)
	case !errors.Is(err, fs.ErrNotExist):
		return knownRun{}, exitError{exitUsage, err}
	case jobIDForm.MatchString(arg):
		return p.runOfJob(arg)
	}
	if sweep, index, ok := strings.Cut(arg, "/"); ok && index != "" && strings.Trim(index, "0123456789") == "" {
		element := filepath.Join(p.abs(filepath.Join(runsFolder, sweep)), "elements", index)
		if _, err := os.Stat(element); err == nil {
			return openRun(element)
		}
	}
	return knownRun{}, exitError{exitUsage, hints.Add(fmt.Errorf("%q is no run directory, job file or job id", arg), "`ddpbatch status` lists the runs below "+runsFolder+"/")}
}

// isRun says whether a folder is a run directory.
func isRun(path string) bool {
	_, err := rundir.Open(path)
	return err == nil
}

// findSettled is findRun for commands that want the run's last job. If a submission was
// interrupted, it finds the job of that submission first. It does not do so for the run of
// another user, whose record it cannot change.
func (p *program) findSettled(ctx context.Context, arg string) (knownRun, error) {
	run, err := p.findRun(arg)
	if err != nil || run.record.Pending == nil || !isOwn(run.dir.Path) {
		return run, err
	}
	dir, release, err := rundir.OpenOwn(run.dir.Path)
	if err != nil {
		return run, err
	}
	defer release()
	s := submit.Submitter{Slurm: p.slurm(), Say: func(line string) { p.note("%s", line) }}
	if err := s.Settle(ctx, dir); err != nil {
		return run, err
	}
	return openRun(run.dir.Path)
}

func openRun(path string) (knownRun, error) {
	dir, err := rundir.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		err = hints.Add(err, "a run directory is open to its owner only: ask that user, or run ddpbatch as that user")
	}
	if err != nil {
		return knownRun{}, exitError{exitUsage, err}
	}
	record, err := dir.ReadRecord()
	return knownRun{dir, record}, err
}

// runOfJob finds the run that was submitted as a job, in the default folder of runs. Runs of
// this user come first: the record of another user's run can name any job.
func (p *program) runOfJob(id string) (knownRun, error) {
	runs, err := p.runs(p.abs(runsFolder))
	if err != nil {
		return knownRun{}, err
	}
	slices.SortStableFunc(runs, func(a, b knownRun) int {
		switch ownA, ownB := isOwn(a.dir.Path), isOwn(b.dir.Path); {
		case ownA == ownB:
			return 0
		case ownA:
			return -1
		}
		return 1
	})
	array, element, isElement := strings.Cut(id, "_")
	for _, r := range runs {
		switch {
		case r.record.Of(id) != nil:
			return r, nil
		case isElement && r.record.Of(array) != nil:
			index, err := strconv.Atoi(element)
			if err != nil {
				return knownRun{}, exitError{exitUsage, err}
			}
			return openRun(r.dir.Element(index).Path)
		}
	}
	return knownRun{}, exitError{exitUsage, hints.Add(fmt.Errorf("no run below %q was submitted as job %s", p.abs(runsFolder), id),
		"name its run directory instead")}
}

// runs are the run directories in a folder, by name; none where there is no folder.
func (p *program) runs(folder string) ([]knownRun, error) {
	found, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var runs []knownRun
	for _, f := range found {
		dir := rundir.Dir{Path: filepath.Join(folder, f.Name())}
		record, err := dir.ReadRecord()
		if errors.Is(err, fs.ErrNotExist) && dir.HasCheckpoints() {
			_, err = rundir.Open(dir.Path)
		} else if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // something else
		}
		if err != nil {
			p.leftOut++
			p.note("left out: %v", err)
			if hint := hints.Of(err); hint != "" {
				p.note("hint: %s", hint)
			}
			continue
		}
		runs = append(runs, knownRun{dir, record})
	}
	return runs, nil
}

// noteNoRuns says that a command has no run to show.
func (p *program) noteNoRuns(folders string) { p.note("%s", p.noRuns(folders)) }

// noRuns says that there are no runs below some folders, or none that can be read.
func (p *program) noRuns(folders string) string {
	if p.leftOut > 0 {
		return fmt.Sprintf("no run below %s can be read", folders)
	}
	return "there are no runs below " + folders
}

// elements are the runs of a sweep, in order; those that were never submitted have
// an empty record.
func (r knownRun) elements() ([]knownRun, error) {
	if r.record.Sweep == nil {
		return nil, nil
	}
	var all []knownRun
	for i := range r.record.Sweep.Elements {
		e := knownRun{dir: r.dir.Element(i)}
		var err error
		if e.record, err = e.dir.ReadRecord(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if e.record.Name == "" {
			e.record.Name = fmt.Sprintf("%s-%d", r.record.Name, i)
		}
		all = append(all, e)
	}
	return all, nil
}

// job is the id of the job that the run was last submitted as.
func (r knownRun) job() (string, error) {
	if id := r.record.LastJob(); id != "" {
		return id, nil
	}
	return "", r.neverStarted()
}

// output is the file with the newest output of the run.
func (r knownRun) output() (string, error) {
	path := r.dir.OutputLog(r.record)
	switch {
	case path != "":
		return path, nil
	case r.isLaunched():
		return "", exitError{exitUsage, hints.Add(fmt.Errorf("run %q kept no output: it could not be written, or an older version of ddpbatch launched it", r.dir.Path),
			"run `ddpbatch logs --rank 0` to see the log of rank 0")}
	}
	return "", r.neverStarted()
}

// short is a path as seen from the current directory, where it is below it.
func (p *program) short(path string) string {
	if rel, err := filepath.Rel(p.Dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}
