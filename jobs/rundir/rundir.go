// Package rundir reads and writes run directories. A run directory contains the job file as
// submitted, the site profile, the batch script, logs, checkpoints, and a record of all
// submissions. The directory of a sweep contains the run directories of its trials.
//
// The package guarantees the following:
//   - Only the owner can read a directory that it creates.
//   - [Create] and [OpenOwn] reject directories of other users, and directories that other users
//     can write to. [Open] accepts them, and is only for reading.
//   - A directory that is held ([Dir.Hold]) stays the same one, even if another user replaces the
//     directory at its path.
//   - It replaces the record, the job file, and the batch script atomically, even if the
//     process is killed.
//   - If two launchers or two submissions use one directory, the second gets an error that
//     names the first.
//
// The launcher describes a job in these files: [Live] is its current view of the ranks,
// [AttemptEvent] is the start or the result of an attempt, [Network] is the network that the ranks
// use, with the reasons, [ComponentState] is the state of a component, and [End] is the result of
// the launcher. The failure report is opaque to this package; package outcome decodes it.
//
// The package does not interpret logs, metrics, or checkpoints, and it does not query Slurm.
// Apart from [Dir.Remove], it deletes only code snapshots that the caller names, temporary files,
// and files of earlier launches: the result and the failure report of the last job, old logs,
// outputs, and measurements, secrets, stop files, and rendezvous files. The locks use flock(2).
// On a file system without flock, they do not separate two launchers that start at the same
// moment.
package rundir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Names of the files and directories in a run directory.
const (
	specName        = "job.toml"
	scriptName      = "job.sbatch"
	recordName      = "record.json"
	siteName        = "site.toml"
	elementsName    = "elements"
	codeName        = "code"
	endName         = "ended.json"
	networkName     = "network.json"
	liveName        = "live.json"
	attemptsName    = "attempts.jsonl"
	checkpointsName = "checkpoints"
	logsName        = "logs"
	tracesName      = "trace"
	failureName     = "failure.json"
	launchLockName  = "lock"
	submitLockName  = "submit.lock"
	tempPrefix      = ".ddpbatch-"
)

// A Dir is a run directory.
type Dir struct {
	Path string // absolute

	root  *os.Root // open directory, see [Dir.Hold]; nil unless it is held
	below string   // path of this directory relative to root; empty for root itself

	checked fs.FileInfo // the directory at Path when it was checked; nil before
}

// Spec returns the path of the job file as submitted.
func (d Dir) Spec() string { return filepath.Join(d.Path, specName) }

// Record returns the path of record.json, the identity of the run and its submissions.
func (d Dir) Record() string { return filepath.Join(d.Path, recordName) }

// Site returns the path of the site profile as of the submission.
func (d Dir) Site() string { return filepath.Join(d.Path, siteName) }

// Element returns the run directory of the sweep's trial with the given index. If the sweep's
// directory is held, the trial's files are opened relative to it.
func (d Dir) Element(index int) Dir {
	name := filepath.Join(elementsName, strconv.Itoa(index))
	e := Dir{Path: filepath.Join(d.Path, name), root: d.root}
	if d.root != nil {
		e.below = filepath.Join(d.below, name)
	}
	return e
}

// IsElement reports whether this is the directory of a sweep's trial.
func (d Dir) IsElement() bool { return filepath.Base(filepath.Dir(d.Path)) == elementsName }

// Code returns the path of the code snapshot of the submission with the given ID; see
// [Submission].
func (d Dir) Code(submission string) string { return filepath.Join(d.Path, codeName, submission) }

// Script returns the path of the batch script as submitted.
func (d Dir) Script() string { return filepath.Join(d.Path, scriptName) }

// BatchLog returns the path of the output of a job's batch script. The ID of an array task has
// the form "18_3".
func (d Dir) BatchLog(jobID string) string {
	return filepath.Join(d.Path, "slurm-"+jobID+".out")
}

// RankLog returns the path of a rank's log, in JSON lines.
func (d Dir) RankLog(rank int) string {
	return filepath.Join(d.Path, logsName, fmt.Sprintf("rank-%05d.jsonl", rank))
}

// Metrics returns the path of rank 0's metrics, in JSON lines.
func (d Dir) Metrics() string { return filepath.Join(d.Path, "metrics.jsonl") }

// ProgramMetrics returns the path of the file to which a user's program appends its metrics.
func (d Dir) ProgramMetrics() string { return filepath.Join(d.Path, "program.jsonl") }

// TensorBoard returns the directory of the event files, which contain the same metrics.
func (d Dir) TensorBoard() string { return filepath.Join(d.Path, "tensorboard") }

// Traces returns the directory of the ranks' traces, which cover the steps in log.trace.
func (d Dir) Traces() string { return filepath.Join(d.Path, tracesName) }

// Trace returns the path of a rank's trace in the format of package trainer/trace.
func (d Dir) Trace(rank int) string {
	return filepath.Join(d.Traces(), fmt.Sprintf("rank-%05d.jsonl", rank))
}

// Checkpoints returns the directory of the checkpoints.
func (d Dir) Checkpoints() string { return filepath.Join(d.Path, checkpointsName) }

// Failure returns the path of the failure report of the last attempt. The file does not exist
// if the attempt did not fail.
func (d Dir) Failure() string { return filepath.Join(d.Path, failureName) }

// End returns the path of ended.json, which the launcher writes when it ends. The file does
// not exist while ranks run, or if the launcher was killed.
func (d Dir) End() string { return filepath.Join(d.Path, endName) }

// Rendezvous returns the path of the file through which the ranks of a step find rank 0 if no
// launcher started them. The restart count keeps a requeued job from reading a file of its
// previous run.
func (d Dir) Rendezvous(jobID, stepID string, restart int) string {
	return filepath.Join(d.Path, fmt.Sprintf("rendezvous-%s-%s-%d.json", jobID, stepID, restart))
}
