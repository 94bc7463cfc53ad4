// Package outcome decides whether a run has finished, how its launcher and its attempts ended,
// and how often the run was restarted. All commands use this package, so that they agree.
//
//   - The built-in trainer has finished if its newest checkpoint holds all epochs that the job
//     file in the run directory requests, including the last evaluation. If there is no
//     checkpoint, the end of the launcher decides. If that is not recorded either, Slurm's state
//     of the last job decides, which the caller passes.
//   - A user's program has finished if all ranks of its last attempt ended with exit code 0
//     and they had not been asked to stop.
//   - An unfinished attempt is stopped if its ranks ended after one stop request, canceled if a
//     second request killed them, and failed otherwise.
//   - A restart is a start of ranks that the user did not request: by the launcher after a
//     failed attempt, or by a requeue of the job. A new attempt with a different port, because
//     another process had the port, does not count.
//
// [Read] returns the records of a run directory as a [State], whose methods decide. [Failure] is
// the content of failure.json. [State.ProgramAdvice] and similar functions return the text for the
// user about how to continue.
//
// If a run directory of an earlier version lacks a record, the package uses exit codes
// instead.
//
// The package does not query Slurm, does not write into run directories, and does not verify
// checkpoints.
package outcome

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// End describes how an attempt, or a launcher with its last attempt, ended.
type End string

// Values of End.
const (
	Open     End = ""         // no end is recorded: still running, or killed with its launcher
	Finished End = "finished" // exit code 0 without a stop request
	Stopped  End = "stopped"  // stopped as requested
	Canceled End = "canceled" // killed after a second stop request
	Failed   End = "failed"
)

// stopCodes are the exit codes other than 0 of ranks that stop on request. Records of earlier
// versions do not show whether a stop was requested. If a rank ends with such a code without a
// request, its launcher records a failure, so the code is sufficient.
var stopCodes = []int{exitcode.Stopped, 128 + int(syscall.SIGUSR1), 128 + int(syscall.SIGTERM)}

// endOf classifies an exit code. Stopped reports whether a stop is recorded, and failed
// whether a failure is recorded.
func endOf(exit int, stopped, failed bool) End {
	switch {
	case exit == exitcode.Canceled:
		return Canceled
	case failed:
		return Failed
	case stopped || slices.Contains(stopCodes, exit):
		return Stopped
	case exit == 0:
		return Finished
	}
	return Failed
}

// State holds the records of a run directory about the progress and the end of its run.
type State struct {
	Job    string            // ID of the last job, empty without Slurm
	Goal   Goal              // from the job file in the run directory
	Newest *checkpoint.Entry // nil without a checkpoint
	End    *rundir.End       // nil while a launcher of the last job runs, or if it was killed
	// Failure is the first failure of the last job's last attempt, from failure.json. It is
	// nil if the attempt did not fail.
	Failure   *rendezvous.Failure
	LastLines []string  // see [Failure]
	Finding   *Finding  // see [Failure]
	Attempts  []Attempt // of all launchers, in order
}

// Goal holds the request of a job file.
type Goal struct {
	Known  bool // the job file could be read
	Trains bool // it uses the built-in trainer
	Epochs int  // epochs of the built-in trainer
}

// Read reads the state of the run in dir. Job is the ID of its last job, or empty without
// Slurm. Read omits files that it cannot read.
func Read(dir rundir.Dir, job string) State {
	s := State{Job: job, Goal: readGoal(dir)}
	s.addFailure(dir)
	if e, ok := dir.ReadEnd(); ok && (e.JobID == job || e.JobID == "" || job == "") {
		s.End = &e
	}
	// The directory at the path of a held directory may be another one, whose checkpoints would finish
	// the run.
	if e, ok, err := checkpoint.Newest(dir.Checkpoints()); err == nil && ok && (!dir.IsHeld() || e.Manifest == nil || e.IsOwn()) {
		s.Newest = &e
	}
	events, _ := dir.ReadAttempts() // after an error, use the events that were read
	s.Attempts = attempts(events)
	return s
}

// readGoal decodes only the two values that matter, because a job file of another version of
// ddpbatch may have keys that this version does not support.
func readGoal(dir rundir.Dir) Goal {
	text, err := dir.ReadSpec()
	var job struct {
		Train   *struct{ Epochs int }
		Command *struct{}
	}
	if err != nil || jobs.DecodeSome(text, &job) != nil || job.Train == nil && job.Command == nil {
		return Goal{}
	}
	g := Goal{Known: true, Trains: job.Train != nil}
	if g.Trains {
		g.Epochs = job.Train.Epochs
	}
	return g
}

// Finished reports whether the run has done everything that its job file requests. Last is
// Slurm's state of the last job. It counts only if the run directory does not determine the
// result.
func (s State) Finished(last slurm.JobState) bool {
	switch e := s.Result(); {
	case e != nil:
		return s.Goal.metBy(e.Manifest)
	case s.End != nil:
		return endOf(s.End.Exit, s.End.Stopped, false) == Finished
	}
	return last.Succeeded()
}

// Result returns the newest checkpoint of the built-in trainer, or nil if it does not exist. It
// ignores checkpoints of a user's program, which do not show the state of the run.
func (s State) Result() *checkpoint.Entry {
	if s.Goal.Known && !s.Goal.Trains {
		return nil
	}
	return s.Newest
}

// metBy reports whether the checkpoint with manifest m completes the run. The manifest is
// nil if the checkpoint is corrupt. The number of requested epochs may have changed since the
// checkpoint was written.
func (g Goal) metBy(m *checkpoint.Manifest) bool {
	if m == nil || m.Unevaluated {
		return false
	}
	if g.Epochs > 0 {
		return m.Epoch >= g.Epochs
	}
	return m.Finished
}

// Ended returns how the last launcher ended.
func (s State) Ended() End {
	if s.End == nil {
		return Open
	}
	return endOf(s.End.Exit, s.End.Stopped, s.Failure != nil)
}

// Restarts counts the restarts of the run. Requeues is how often Slurm has requeued the last
// job, or negative if unknown.
func (s State) Restarts(requeues int) int {
	n := 0
	byJob := map[string]int{s.Job: max(requeues, 0)}
	for _, a := range s.Attempts {
		seen := a.Requeues
		switch a.Then {
		case Restarted:
			if !a.PortTaken {
				n++
			}
		case Requeued:
			seen++
		}
		byJob[a.JobID] = max(byJob[a.JobID], seen)
	}
	for _, requeues := range byJob {
		n += requeues
	}
	return n
}

// RequeuesWithoutProgress counts the requeues after attempts in which the program did not
// handle the stop signal. Slurm may kill a launcher before it records its requeue. A following
// attempt of the same job with a higher count therefore counts as well.
func (s State) RequeuesWithoutProgress() (n int) {
	for i, a := range s.Attempts {
		again := i+1 < len(s.Attempts) && s.Attempts[i+1].JobID == a.JobID && s.Attempts[i+1].Requeues > a.Requeues
		if a.NoProgress && (again || a.Then == Requeued) {
			n++
		}
	}
	return n
}

// Requeued reports whether a last job that is now in the queue was requeued: its launcher
// recorded this, or had started ranks before it was killed.
func (s State) Requeued() bool {
	n := len(s.Attempts)
	return n > 0 && (s.Attempts[n-1].Then == Requeued || s.Job != "" && s.Attempts[n-1].JobID == s.Job)
}

// Requeues returns how often the last job had been requeued when its last attempt began.
func (s State) Requeues() int {
	for _, a := range slices.Backward(s.Attempts) {
		if a.JobID == s.Job {
			return a.Requeues
		}
	}
	return 0
}

// ProgramAdvice returns how to continue the user's program of a run that has not finished, and
// whether the program is known to have saved. Again is the command that starts the run again. The
// advice is empty for the built-in trainer, and if the last job started no rank.
func (s State) ProgramAdvice(again string) string {
	n := len(s.Attempts)
	if !s.Goal.Known || s.Goal.Trains || n == 0 || s.Attempts[n-1].JobID != s.Job {
		return ""
	}
	if s.Attempts[n-1].NotStarted {
		return NotStartedAdvice(again)
	}
	return SaveAdvice(s.Attempts[n-1].ReportedSave, s.Attempts[n-1].NoProgress, again)
}

// SaveAdvice returns how to continue a user's program that was stopped. Saved reports that its exit
// code means that it has saved, and unhandled that it did not handle the stop signal. Again is the
// command that starts the run again.
func SaveAdvice(saved, unhandled bool, again string) string {
	switch {
	case unhandled:
		return fmt.Sprintf("the program does not handle the stop signal, so it saved nothing when it was stopped; %s it again to continue from an earlier save", again)
	case saved:
		return fmt.Sprintf("the exit code of the program means that it saved; %s it again to continue", again)
	}
	return fmt.Sprintf("it is unknown whether the program saved; %s it again to continue from its last save", again)
}

// NotStartedAdvice returns how to continue after a stop before the user's program had started. Again
// is the command that starts the run again.
func NotStartedAdvice(again string) string {
	return fmt.Sprintf("the program had not started; %s it again", again)
}

// An Attempt is one start of all ranks.
type Attempt struct {
	JobID    string    `json:"job_id,omitempty"`
	Requeues int       `json:"requeues"` // of the job before this attempt
	Number   int       `json:"attempt"`  // counted from 1 in each launcher
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended,omitzero"`
	Hosts    string    `json:"hosts,omitempty"`
	Ranks    int       `json:"ranks"`
	Exit     *int      `json:"exit,omitempty"`    // nil while it runs, or if it was killed with its launcher
	Stopped  bool      `json:"stopped,omitempty"` // its ranks ended as requested
	Step     int       `json:"step"`
	Cause    string    `json:"cause,omitempty"`
	Rank     *int      `json:"rank,omitempty"` // the failed rank
	Host     string    `json:"host,omitempty"`
	Then     string    `json:"then,omitempty"` // Restarted or Requeued
	// NoProgress reports that the user's program was stopped and did not handle the signal.
	NoProgress bool `json:"no_progress,omitempty"`
	// ReportedSave reports that the user's program was stopped and ended with an exit code that means
	// that it has saved.
	ReportedSave bool `json:"reported_save,omitempty"`
	// NotStarted reports that the attempt was stopped before the user's program started.
	NotStarted bool `json:"not_started,omitempty"`
	// PortTaken reports that the next attempt follows because another process had the port of the
	// program. It is not a restart.
	PortTaken bool `json:"port_taken,omitempty"`
	// TasksPerNode has the number of ranks on each host, as in [rundir.AttemptEvent].
	TasksPerNode string `json:"-"`
}

// Values of Attempt.Then: what followed an attempt without a request of the user.
const (
	Restarted = "restarted" // by the launcher
	Requeued  = "requeued"  // the job was requeued, by its launcher or by Slurm
)

// End returns how the attempt ended. A failed rank distinguishes a failure from a stop with
// the same exit code.
func (a Attempt) End() End {
	switch {
	case a.Exit == nil:
		return Open
	case a.Rank != nil:
		return Failed
	}
	return endOf(*a.Exit, a.Stopped, false)
}

// attempts joins the events of starts and ends. If the job of an attempt starts again with a
// higher requeue count, the job was requeued after that attempt. The launcher may not have
// recorded this requeue, because Slurm killed it first or requeued the job on its own.
func attempts(events []rundir.AttemptEvent) []Attempt {
	var all []Attempt
	for _, e := range events {
		last := len(all) - 1
		switch {
		case e.Event == rundir.AttemptBegan:
			if last >= 0 && e.JobID != "" && all[last].JobID == e.JobID && e.Requeues > all[last].Requeues {
				all[last].Then = Requeued
			}
			all = append(all, Attempt{JobID: e.JobID, Requeues: max(e.Requeues, 0), Number: e.Attempt, Began: e.Time, Hosts: e.Hosts, Ranks: e.Ranks, TasksPerNode: e.TasksPerNode})
		case last < 0 || all[last].JobID != e.JobID || all[last].Requeues != e.Requeues:
			// The event of the start could not be written.
		case e.Event == rundir.AttemptEnded && all[last].Number == e.Attempt:
			a := &all[last]
			a.NoProgress, a.ReportedSave, a.NotStarted, a.PortTaken = e.NoProgress, e.ReportedSave, e.NotStarted, e.PortTaken
			a.Ended, a.Exit, a.Stopped, a.Step, a.Cause, a.Rank, a.Host = e.Time, &e.Exit, e.Stopped, e.Step, e.Cause, e.Rank, e.Host
			if e.Again {
				a.Then = Restarted
			}
		case e.Event == rundir.JobRequeued:
			all[last].Then = Requeued
		}
	}
	return all
}
