// Package rundir is the run directory: the folder in which a job keeps its spec
// as submitted, the profile of its site, its batch script, its logs, its
// checkpoints and a record of how often it was submitted. That of a sweep holds
// those of its elements.
//
// It promises that a directory it made can be read by its owner only; that one
// that others could write into is refused; that the record, the spec and the
// script are replaced whole or not at all, whatever happens in between; and that
// of two launchers, or of two submissions, in one directory the second is told
// of the first.
//
// Two more files tell of a job while it runs and after: how its launcher sees the ranks
// now ([Live]), and what has become of each attempt ([AttemptEvent]). A third says over
// which network ranks talk, and why ([Network]).
//
// It does not know what stands in the logs, the metrics or the checkpoints, does
// not ask Slurm what became of a job, and removes nothing but the word of how the
// last job ended, when another one begins. Its locks are those of flock(2); on a file
// system without them two launchers that begin at the same moment are not kept apart.
package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Names inside a run directory.
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

// Dir is a run directory.
type Dir struct {
	Path string // absolute

	root  *os.Root // the open directory, see [Dir.Hold]; nil unless it is held
	below string   // path of this directory in root; empty for root itself
}

// Spec is the job file as it was submitted.
func (d Dir) Spec() string { return filepath.Join(d.Path, specName) }

// Site is the profile of the job's site as it was at submission.
func (d Dir) Site() string { return filepath.Join(d.Path, siteName) }

// Element is the run directory of one element of a sweep. If the directory of the sweep is
// held, files of the element are below it.
func (d Dir) Element(index int) Dir {
	name := filepath.Join(elementsName, strconv.Itoa(index))
	e := Dir{Path: filepath.Join(d.Path, name), root: d.root}
	if d.root != nil {
		e.below = filepath.Join(d.below, name)
	}
	return e
}

// IsElement says whether this is the directory of a sweep's element.
func (d Dir) IsElement() bool { return filepath.Base(filepath.Dir(d.Path)) == elementsName }

// Code is where the snapshot of the user's code is kept that was submitted with
// an id; see [Submission].
func (d Dir) Code(submission string) string { return filepath.Join(d.Path, codeName, submission) }

// Script is the batch script as it was submitted.
func (d Dir) Script() string { return filepath.Join(d.Path, scriptName) }

// BatchLog is what the batch script of a job prints; the id of an element of a job
// array is "18_3".
func (d Dir) BatchLog(jobID string) string {
	return filepath.Join(d.Path, "slurm-"+jobID+".out")
}

// RankLog is a rank's own log, in JSON lines.
func (d Dir) RankLog(rank int) string {
	return filepath.Join(d.Path, logsName, fmt.Sprintf("rank-%05d.jsonl", rank))
}

// Metrics is the file of rank 0's figures, in JSON lines.
func (d Dir) Metrics() string { return filepath.Join(d.Path, "metrics.jsonl") }

// TensorBoard is the folder of the event files with the same figures.
func (d Dir) TensorBoard() string { return filepath.Join(d.Path, "tensorboard") }

// Traces is the folder of the ranks' timelines of the steps of log.trace.
func (d Dir) Traces() string { return filepath.Join(d.Path, tracesName) }

// Trace is that of a rank, as package trainer/trace writes it.
func (d Dir) Trace(rank int) string {
	return filepath.Join(d.Traces(), fmt.Sprintf("rank-%05d.jsonl", rank))
}

// Checkpoints is the folder of the checkpoints.
func (d Dir) Checkpoints() string { return filepath.Join(d.Path, checkpointsName) }

// Failure is the file that says how the last attempt failed; there is none after
// one that did not.
func (d Dir) Failure() string { return filepath.Join(d.Path, failureName) }

// End is the file that says how the last job ended here, in the launcher's words;
// there is none while ranks run, or where the launcher was killed.
func (d Dir) End() string { return filepath.Join(d.Path, endName) }

// Rendezvous is the file by which the ranks of one step, which no launcher
// started, find rank 0. The restart count keeps a requeued job from reading the
// file of its earlier run.
func (d Dir) Rendezvous(jobID, stepID string, restart int) string {
	return filepath.Join(d.Path, fmt.Sprintf("rendezvous-%s-%s-%d.json", jobID, stepID, restart))
}
