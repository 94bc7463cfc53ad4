// Package runs finds runs and determines their status and how they ended. All commands that show,
// wait for, or cancel runs use it, so that they agree.
//
//   - [Store] finds a run by its directory, job file, name, or job ID, and lists runs.
//   - [Run] is a run directory with its record. The trials of a sweep are runs themselves.
//   - [Poller] returns the status of many runs repeatedly, with few file accesses and one
//     query to Slurm.
//   - [Store.Wait] waits until runs end. [Ended.Result] describes the end, with an exit code.
//   - [Run.CancelLaunch], [Store.CancelJob], and [Store.CancelTrials] cancel runs.
//
// The package guarantees:
//
//   - A name or an ID selects the user's own run if there is one. Other users may be able to
//     create entries in a shared directory, and their records can claim any job ID.
//   - It does not cancel a job if Slurm reports that the job was not submitted from the run
//     directory. Callers open the run with [Run.OpenOwn], so records of other users cannot
//     cancel this user's jobs.
//   - An unreadable run does not hide the others.
//
// Package rundir reads and writes the files. Package outcome decides what has finished or
// failed, and package watch determines phases and formats them. This package does not print, and
// it does not exit. It writes into a run directory only if it resolves an interrupted submission
// or records a canceled job.
package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// A Run is a run directory and its record.
type Run struct {
	Dir    rundir.Dir
	Record rundir.Record
}

// Open returns the run in the directory at an absolute path. The directory may belong to another
// user. If only its record is invalid, the run with the error has the directory.
func Open(path string) (Run, error) {
	dir, err := rundir.Open(path)
	if err == nil {
		err = dir.CheckLinks()
	}
	if errors.Is(err, fs.ErrPermission) {
		err = hints.Add(err, "a run directory is open to its owner only: ask that user, or run ddpbatch as that user")
	}
	if err != nil {
		return Run{}, exitcode.Add(exitcode.Usage, err)
	}
	record, err := dir.ReadRecord()
	return Run{dir, record}, err
}

// IsRunDir reports whether path is a run directory.
func IsRunDir(path string) bool {
	_, err := rundir.Open(path)
	return err == nil
}

// OpenOwn opens and holds the directory of a run of this user again; see [rundir.OpenOwn]. It
// rejects other users' runs, because their records could name any job of this user.
func (r Run) OpenOwn() (held Run, release func(), err error) {
	dir, release, err := rundir.OpenOwn(r.Dir.Path)
	if err != nil {
		info, missing := os.Lstat(r.Dir.Path)
		switch {
		case !IsOwn(r.Dir.Path):
			err = hints.Add(err, "only its owner can cancel the run; end your own jobs with `scancel`")
		case missing == nil && info.Mode()&fs.ModeSymlink != 0:
			err = hints.Add(err, "name the directory that the link leads to")
		}
		return Run{}, nil, exitcode.Add(exitcode.Usage, err)
	}
	held.Dir = dir
	if held.Record, err = dir.ReadRecord(); err != nil {
		release()
		return Run{}, nil, err
	}
	return held, release, nil
}

// IsSweep reports whether the run is a sweep.
func (r Run) IsSweep() bool { return r.Record.Sweep != nil }

// Trials returns the trials of a sweep, in order. A trial that was never submitted has a record
// with a name only. The result is nil if the run is not a sweep.
func (r Run) Trials() ([]Run, error) {
	if !r.IsSweep() {
		return nil, nil
	}
	if err := r.CheckSweepSize(); err != nil {
		return nil, err
	}
	var all []Run
	for i := range r.Record.Sweep.Elements {
		trial, err := r.trial(i)
		if err != nil {
			return nil, err
		}
		all = append(all, trial)
	}
	return all, nil
}

func (r Run) trial(index int) (Run, error) {
	trial := Run{Dir: r.Dir.Element(index)}
	err := trial.Dir.CheckLinks()
	if err != nil {
		return Run{}, err
	}
	if trial.Record, err = trial.Dir.ReadRecord(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Run{}, err
	}
	if trial.Record.Name == "" {
		trial.Record.Name = fmt.Sprintf("%s-%d", r.Record.Name, index)
	}
	// A trial is never a sweep. Links of another user could make a sweep its own trial. A trial has no
	// more jobs than its sweep, whose chain determines the cost.
	trial.Record.Sweep = nil
	if !IsOwn(r.Dir.Path) {
		trial.Record.Chain = trial.Record.Chain[:min(len(trial.Record.Chain), len(r.Record.Chain))]
	}
	return trial, nil
}

// Job returns the ID of the run's last Slurm job. It returns an error if the run was never
// submitted.
func (r Run) Job() (string, error) {
	if id := r.Record.LastJob(); id != "" {
		return id, nil
	}
	return "", r.neverStarted()
}

// OutputPath returns the path of the run's newest output log. The file may not exist yet.
func (r Run) OutputPath() (string, error) {
	path := r.Dir.OutputLog(r.Record)
	switch {
	case path != "":
		return path, nil
	case r.IsLaunched():
		return "", exitcode.Usagef("run `ddpbatch logs --rank 0` to see the log of rank 0",
			"run %q has no output log: it could not be written, or an older version of ddpbatch launched it", r.Dir.Path)
	}
	return "", r.neverStarted()
}

// neverStarted returns the error for a run without a job and without a launcher.
func (r Run) neverStarted() error {
	if _, err := os.Stat(r.Dir.RankLog(0)); err == nil {
		return exitcode.Usagef("see the output of the program that started the ranks, or run `ddpbatch logs --rank 0`",
			"run %q has no launcher: its ranks were started by srun, torchrun, or mpirun", r.Dir.Path)
	}
	return exitcode.Usagef("start it with `ddpbatch submit`, or without Slurm with `ddpbatch launch`",
		"run %q was never submitted to Slurm or launched", r.Dir.Path)
}

// SplitByStart divides runs by how they were last started: as Slurm jobs, or by a local launcher.
// It omits runs that were never started.
func SplitByStart(all []Run) (jobs, launched []Run) {
	for _, r := range all {
		switch {
		case r.IsLaunched():
			launched = append(launched, r)
		case r.Record.LastJob() != "":
			jobs = append(jobs, r)
		}
	}
	return jobs, launched
}

// JobIDs returns the IDs of the runs' last jobs. It omits runs that were never submitted.
func JobIDs(all []Run) []string {
	var ids []string
	for _, r := range all {
		if id := r.Record.LastJob(); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}
