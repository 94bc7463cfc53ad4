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

// A knownRun is a run directory and its record.
type knownRun struct {
	dir    rundir.Dir
	record rundir.Record
}

// jobIDForm matches the ID of a job or of an array task.
var jobIDForm = regexp.MustCompile(`^[0-9]+(_[0-9]+)?$`)

// findRun returns the run that arg names. The argument can be:
//
//   - a run directory
//   - a job file, for its default run directory
//   - the name of a directory below runs/
//   - the ID of a job that was submitted from a directory below runs/
//   - for a trial of a sweep, an array task ID such as "18_3", or "SWEEP/INDEX"
//
// Other users may be able to create entries in the current directory. findRun therefore
// prefers the user's own runs, and prints a note if a name leads to another user's run.
func (p *program) findRun(arg string) (knownRun, error) {
	if arg == "" { // an unset shell variable; it must not select the current directory
		return knownRun{}, usage("the name of the run is empty")
	}
	if run, ok := p.findOwnRun(arg); ok {
		return run, nil
	}
	run, err := p.findAnyRun(arg)
	if err == nil && isName(arg) && !isOwn(run.dir.Path) {
		p.note("%q is a run of another user, in %q", arg, run.dir.Path)
	}
	return run, err
}

// trialForm matches the name of a trial of a sweep, "SWEEP/INDEX".
var trialForm = regexp.MustCompile(`^([^/]+)/([0-9]+)$`)

// isName reports whether arg can be a name or an ID, in contrast to a path that the user
// wrote out.
func isName(arg string) bool {
	return arg != "." && arg != ".." && (!strings.Contains(arg, "/") || trialForm.MatchString(arg))
}

// findOwnRun returns the user's own run that a name or an ID selects. It reports false if
// there is none, or if arg is a path or the user's own file.
func (p *program) findOwnRun(arg string) (knownRun, bool) {
	if !isName(arg) || isOwnEntry(p.abs(arg)) {
		return knownRun{}, false
	}
	path := p.abs(filepath.Join(runsFolder, arg))
	if m := trialForm.FindStringSubmatch(arg); m != nil {
		if !isOwnEntry(p.abs(filepath.Join(runsFolder, m[1]))) {
			return knownRun{}, false
		}
		path = p.trialPath(m[1], m[2])
	}
	if isOwnEntry(path) {
		if run, err := openRun(path); err == nil {
			return run, true
		}
	}
	if !jobIDForm.MatchString(arg) || !entryExists(p.abs(arg)) && !entryExists(path) {
		return knownRun{}, false // findAnyRun looks up a job ID if no file has its name
	}
	run, err := p.runOfJob(arg)
	return run, err == nil && isOwn(run.dir.Path)
}

// trialPath returns the run directory of a trial of the sweep runs/SWEEP.
func (p *program) trialPath(sweep, index string) string {
	return filepath.Join(p.abs(filepath.Join(runsFolder, sweep)), "elements", index)
}

// findAnyRun returns the run that arg names, without regard to its owner.
func (p *program) findAnyRun(arg string) (knownRun, error) {
	path, named := p.abs(arg), p.abs(filepath.Join(runsFolder, arg))
	if isRun(named) && !isRun(path) && !strings.HasSuffix(arg, ".toml") {
		// The user's code or data often has the same name as the run.
		return openRun(named)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		// The error from a run directory that cannot be opened is more useful than "not
		// found".
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
	if m := trialForm.FindStringSubmatch(arg); m != nil {
		sweep := p.abs(filepath.Join(runsFolder, m[1]))
		if info, err := os.Lstat(sweep); err == nil && info.Mode()&fs.ModeSymlink != 0 && !isOwnFile(info) {
			return knownRun{}, exitError{exitUsage, fmt.Errorf("%q is a symbolic link of another user", sweep)}
		}
		element := p.trialPath(m[1], m[2])
		if _, err := os.Stat(element); err == nil {
			return openRun(element)
		}
	}
	return knownRun{}, exitError{exitUsage, hints.Add(fmt.Errorf("%q is no run directory, job file or job id", arg), "`ddpbatch status` lists the runs below "+runsFolder+"/")}
}

// isRun reports whether path is a run directory.
func isRun(path string) bool {
	_, err := rundir.Open(path)
	return err == nil
}

// findSettled is like findRun, but also resolves an interruptError submission, so that the record
// contains the run's last job. It does not resolve submissions of other users, because it
// cannot change their records.
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
	if err := s.RecoverPending(ctx, dir); err != nil {
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

// runOfJob returns the run with the given job ID from the default directory of runs. It
// prefers the user's own runs, because the record of another user's run can claim any job ID.
func (p *program) runOfJob(id string) (knownRun, error) {
	runs, err := p.runs(p.abs(runsFolder))
	if err != nil {
		return knownRun{}, err
	}
	slices.SortStableFunc(runs, func(a, b knownRun) int {
		// A link of another user to a run of this user does not count.
		switch ownA, ownB := isOwnEntry(a.dir.Path), isOwnEntry(b.dir.Path); {
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

// runs returns the runs in a directory, sorted by name. It reports and skips runs that it
// cannot read, and runs of other users with very large records. The result is empty if the
// directory does not exist.
func (p *program) runs(folder string) ([]knownRun, error) {
	found, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var runs []knownRun
	budget := newReadBudget(maxForeignRecords)
	for _, f := range found {
		dir := rundir.Dir{Path: filepath.Join(folder, f.Name())}
		if user, foreign := foreignOwner(dir.Path); foreign && !budget.take(user, fileSize(dir.Record(), maxForeignRecords)) {
			p.leftOut++
			continue
		}
		record, err := dir.ReadRecord()
		if errors.Is(err, fs.ErrNotExist) && dir.HasCheckpoints() {
			_, err = rundir.Open(dir.Path)
		} else if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // not a run directory
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
	for _, note := range budget.notes() {
		p.note("%s", note)
	}
	return runs, nil
}

// noteNoRuns prints that a command has no run to show.
func (p *program) noteNoRuns(folders string) { p.note("%s", p.noRuns(folders)) }

// noRuns returns the message that the directories contain no runs, or no readable ones.
func (p *program) noRuns(folders string) string {
	if p.leftOut > 0 {
		return fmt.Sprintf("no run below %s can be read", folders)
	}
	return "there are no runs below " + folders
}

// elements returns the trials of a sweep, in order. A trial that was never submitted has an
// empty record. The result is nil if the run is not a sweep.
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
		// A trial is never a sweep. Links of another user could make a sweep its own trial.
		e.record.Sweep = nil
		all = append(all, e)
	}
	return all, nil
}

// job returns the ID of the run's last Slurm job. It returns an error if the run was never
// submitted.
func (r knownRun) job() (string, error) {
	if id := r.record.LastJob(); id != "" {
		return id, nil
	}
	return "", r.neverStarted()
}

// output returns the path of the run's newest output log.
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

// short returns path relative to the current directory if it is below it, and unchanged
// otherwise.
func (p *program) short(path string) string {
	if rel, err := filepath.Rel(p.Dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}
