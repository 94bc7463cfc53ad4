// Package report creates an HTML report of a run. The report shows what was trained and how
// fast, on which ranks, over which network and why. It lists failures with causes and fixes,
// and everything that is needed to reproduce the run.
//
// The package guarantees:
//
//   - A report is a single file. It loads nothing and runs no scripts. All external content in
//     it is plain text.
//   - Unfinished, failed, corrupt, and empty runs also have a report. It lists what is
//     missing.
//   - [Collect] only reads, and needs only the run directory.
//
// The package does not query Slurm; callers can pass Slurm's report about the job. It does not
// provide a live view, and it does not verify checkpoints.
package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/doctor/symptoms"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/usage"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// Run is the data of a report about one run.
type Run struct {
	Dir     rundir.Dir
	Record  rundir.Record // zero if it cannot be read
	Name    string
	Spec    string // content of the job file
	Script  string // content of the batch script; empty without Slurm
	Metrics Metrics

	Network     *rundir.Network    // nil if the ranks have not agreed on a network
	Checkpoints []checkpoint.Entry // newest first
	End         *rundir.End        // nil if no launcher has ended
	Failure     *outcome.Failure   // failure of the last attempt; nil if it did not fail
	Missing     []string           // what does not exist or cannot be read
	Traced      bool               // a timeline of some steps exists
	Known       []symptoms.Found   // known failures in the output of the last job; likely causes first
	Usage       []usage.Node       // CPU, memory, and GPUs of a user's program
	Argv        []string           // command line of a user's program; nil if it is unknown

	// Status is the status of the run; see [Run.SetStatus].
	Status watch.Status
	// Code is the state of the user's program at the last launch, if no submission recorded
	// it.
	Code    *rundir.Code
	Made    time.Time // time of the call of SetStatus
	Version string    // version of the program that creates the report
}

// maxText is the maximum number of bytes of a file that the report includes.
const maxText = 1 << 20

// maxLog is the maximum number of bytes of a log to search for known failures. Another user
// may own the log, and can make it as large as a file can be. In the report of a sweep, maxTrialLog is
// the maximum for each trial.
const maxLog, maxTrialLog = 4 << 30, 256 << 20

// Collect reads a run directory. It lists in Missing what does not exist or cannot be read.
func Collect(dir rundir.Dir) Run {
	r := collect(dir)
	r.scanLog(maxLog)
	return r
}

// collect does not read the log, which may be large.
func collect(dir rundir.Dir) Run {
	r := Run{Dir: dir}
	var err error
	if r.Record, err = dir.ReadRecord(); err != nil {
		r.addMissing("run record", err)
	}
	r.Name = r.Record.Name
	r.Spec = r.readText("job file", dir.Spec())
	if len(r.Record.Submissions) > 0 {
		r.Script = r.readText("batch script", dir.Script())
	}
	r.Metrics, err = readMetrics(dir.Metrics())
	switch {
	case err != nil:
		r.addMissing("metrics", err)
	case r.Metrics.isEmpty() && readArgv(r.Spec) != nil:
		r.Missing = append(r.Missing, "no metrics: the program printed no progress that ddpbatch recognizes; set command.progress, or write to the file in DDPBATCH_METRICS")
	case r.Metrics.isEmpty():
		r.Missing = append(r.Missing, "no metrics: the run has not reached its first log interval")
	}
	if n := r.Metrics.Unparsed; n > 0 {
		r.Missing = append(r.Missing, format.Count(n, "line")+" of metrics.jsonl cannot be parsed")
	}
	job := r.Record.LastJob()
	if dir.IsLaunched(r.Record) {
		job = "" // the launch is newer
	}
	r.Status = watch.Read(dir, r.Name, job, nil)
	events, err := dir.ReadAttempts()
	for _, e := range events {
		if e.Code != nil {
			r.Code = e.Code
		}
	}
	switch {
	case err != nil:
		r.addMissing("attempts", err)
	case len(r.Status.Attempts) == 0:
		r.Missing = append(r.Missing, "no attempts: no launcher has started a run in this directory, or an older version of ddpbatch did")
	}
	if r.Network, err = dir.ReadNetwork(); err != nil {
		r.addMissing("network", err)
	} else if r.Network == nil {
		r.Missing = append(r.Missing, "no network: the ranks have not selected one yet")
	}
	if r.Checkpoints, err = checkpoint.List(dir.Checkpoints()); err != nil {
		r.addMissing("checkpoints", err)
	}
	if end, ok := dir.ReadEnd(); ok {
		r.End = &end
	}
	if r.Failure, err = outcome.ReadFailure(dir); err != nil {
		r.addMissing("last failure", err)
	}
	r.Status.AddUsage(dir)
	r.Usage = r.Status.Usage
	r.Status.AddComponents(dir)
	r.Argv = readArgv(r.Spec)
	_, err = os.Stat(dir.Traces())
	r.Traced = err == nil
	return r
}

// readArgv returns the command line of the program in a job file. It returns nil for the built-in
// trainer, and for a job file of a different version that it cannot decode.
func readArgv(spec string) []string {
	var job struct{ Command *struct{ Argv []string } }
	if jobs.DecodeSome([]byte(spec), &job) != nil || job.Command == nil {
		return nil
	}
	return job.Command.Argv
}

// scanLog searches for known failures in the newest output of the run, up to limit bytes. There is no
// output if the job is still queued, or if no launch has stored it.
func (r *Run) scanLog(limit int64) {
	path := r.Dir.OutputLog(r.Record)
	if path == "" {
		return
	}
	f, err := rundir.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		defer f.Close()
		r.Known, err = r.scanFile(f, limit)
	}
	if err != nil {
		r.addMissing("log "+filepath.Base(path), err)
	}
}

// scanFile searches for known failures in a log.
func (r *Run) scanFile(log *os.File, limit int64) (known []symptoms.Found, err error) {
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		r.Missing = append(r.Missing, fmt.Sprintf("only the first %s of the log were searched for known failures", format.Bytes(limit)))
	}
	known, _, err = symptoms.Scan(io.LimitReader(log, limit))
	return known, err
}

// SetStatus determines the status of the run from the collected data and from Slurm's report
// about its last job. Job is nil if there is no such report.
func (r *Run) SetStatus(job *slurm.JobState, now time.Time) {
	if job != nil && r.Status.Job != "" {
		r.Status.AddJob(*job)
	}
	r.Status.Pending = r.Record.Pending != nil
	r.Status.SetPhase(now)
	r.Made = now
}

// firstFailure returns the first failure of the last job's last attempt, or nil if no rank failed.
func (r *Run) firstFailure() *rendezvous.Failure {
	if r.Failure == nil || !r.Failure.IsOf(r.Record.LastJob()) {
		return nil
	}
	return r.Failure.First
}

func (r *Run) addMissing(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	if errors.Is(err, fs.ErrNotExist) {
		text = what + ": file does not exist"
	}
	r.Missing = append(r.Missing, text)
}

// readText returns the content of a file of the run, truncated to maxText bytes.
func (r *Run) readText(what, path string) string {
	text, err := rundir.ReadSome(path, maxText+1)
	if err != nil {
		r.addMissing(what, err)
	}
	if len(text) > maxText {
		r.Missing = append(r.Missing, what+": truncated to 1 MiB")
		text = text[:maxText]
	}
	return string(text)
}
