// Package outcome decides whether a run has finished, how its launcher and its attempts
// ended, and how often the run was restarted. All commands take these answers from here,
// so that they agree.
//
//   - The built-in trainer has finished when its newest checkpoint holds all epochs that
//     the job file in the run directory requests, the last evaluation included. If there
//     is no checkpoint, the end of the launcher counts.
//   - A user's program has finished when all ranks of its last attempt ended with exit
//     code 0 and nothing had asked them to stop.
//   - An attempt is stopped when its ranks ended as they were asked to, canceled when
//     someone gave up waiting for that, and failed otherwise.
//   - A restart is a start of ranks that nobody asked for: by the launcher after a failed
//     attempt, or by a requeue of the job.
//
// Run directories of earlier versions are judged by exit codes where a record is missing.
//
// The package does not query Slurm, does not write into run directories, and does not
// verify checkpoints.
package outcome

import (
	"slices"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// End is how an attempt, or a launcher with its last attempt, ended.
type End string

// The ends.
const (
	Open     End = ""         // no end is recorded: it still runs, or was killed with its launcher
	Finished End = "finished" // exit code 0, and nothing had asked it to stop
	Stopped  End = "stopped"  // it was asked to stop, and did
	Canceled End = "canceled" // it was asked to stop twice, and killed
	Failed   End = "failed"
)

const (
	exitStopped  = 3
	exitCanceled = 130
)

// stopCodes are the exit codes other than 0 of ranks that stop when asked to. Records of
// earlier versions do not say whether a stop was requested. A rank that ends with such a
// code without a request is recorded as a failure, so the code is sufficient.
var stopCodes = []int{exitStopped, 128 + int(syscall.SIGUSR1), 128 + int(syscall.SIGTERM)}

// endOf classifies an exit code. Stopped is the record of a requested stop, failed that
// of a failure.
func endOf(exit int, stopped, failed bool) End {
	switch {
	case exit == exitCanceled:
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

// State is what a run directory records of how far its run is and how it ended.
type State struct {
	Job      string            // ID of the last job, empty without Slurm
	Goal     Goal              // of the job file in the run directory
	Newest   *checkpoint.Entry // nil without a checkpoint
	End      *rundir.End       // nil while a launcher of the last job runs, or if it was killed
	Attempts []Attempt         // of all launchers, in order
}

// Goal is what a job file requests.
type Goal struct {
	Known  bool // the job file could be read
	Trains bool // with the built-in trainer
	Epochs int  // of the built-in trainer
}

// maxSpec is the largest job file that is read, in bytes.
const maxSpec = 1 << 20

// Read reads the state of the run in dir, whose last job has an ID or is empty. Files that
// cannot be read are omitted.
func Read(dir rundir.Dir, job string) State {
	s := State{Job: job, Goal: readGoal(dir)}
	if e, ok := dir.ReadEnd(); ok && (e.JobID == job || e.JobID == "" || job == "") {
		s.End = &e
	}
	if e, ok, err := checkpoint.Newest(dir.Checkpoints()); err == nil && ok {
		s.Newest = &e
	}
	events, _ := dir.ReadAttempts() // lines before the one that cannot be read count
	s.Attempts = attempts(events)
	return s
}

// readGoal decodes the two values that matter: a job file of another version of ddpbatch
// may have keys that this one does not accept.
func readGoal(dir rundir.Dir) Goal {
	text, err := rundir.ReadSome(dir.Spec(), maxSpec)
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

// Finished reports whether the run has done all that its job file requests. Last is what
// Slurm says of the last job; it counts only if the run directory does not tell.
func (s State) Finished(last slurm.JobState) bool {
	switch e := s.Result(); {
	case e != nil:
		return s.Goal.metBy(e.Manifest)
	case s.End != nil:
		return endOf(s.End.Exit, s.End.Stopped, false) == Finished
	}
	return last.Succeeded()
}

// Result returns the newest checkpoint of the built-in trainer, nil if there is none. What
// a user's program keeps under such a name says nothing about the run.
func (s State) Result() *checkpoint.Entry {
	if s.Goal.Known && !s.Goal.Trains {
		return nil
	}
	return s.Newest
}

// metBy reports whether the checkpoint with manifest m, nil if it is corrupt, is the end
// of the training. More epochs may have been requested since it was written, or fewer.
func (g Goal) metBy(m *checkpoint.Manifest) bool {
	if m == nil || m.Unevaluated {
		return false
	}
	if g.Epochs > 0 {
		return m.Epoch >= g.Epochs
	}
	return m.Finished
}

// Ended returns how the last launcher ended. Failed says that failure.json holds a failure
// of its job.
func (s State) Ended(failed bool) End {
	if s.End == nil {
		return Open
	}
	return endOf(s.End.Exit, s.End.Stopped, failed)
}

// Restarts counts the restarts of the run. Requeues is how often Slurm has requeued the
// last job, less than 0 if that is not known.
func (s State) Restarts(requeues int) int {
	n := 0
	byJob := map[string]int{s.Job: max(requeues, 0)}
	for _, a := range s.Attempts {
		seen := a.Requeues
		switch a.Then {
		case Restarted:
			n++
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
// handle the stop signal. Slurm may kill a launcher before it can record its requeue, so
// the next attempt counts as well.
func (s State) RequeuesWithoutProgress() (n int) {
	for i, a := range s.Attempts {
		again := i+1 < len(s.Attempts) && s.Attempts[i+1].JobID == a.JobID && s.Attempts[i+1].Requeues > a.Requeues
		if a.NoProgress && (again || a.Then == Requeued) {
			n++
		}
	}
	return n
}

// Requeued reports whether the last job was requeued if it waits in the queue: its
// launcher recorded that, or was killed first, but had started ranks.
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

// Attempt is one start of all ranks.
type Attempt struct {
	JobID    string    `json:"job_id,omitempty"`
	Requeues int       `json:"requeues"` // of the job before it
	Number   int       `json:"attempt"`  // counted from 1 in each launcher
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended,omitzero"`
	Hosts    string    `json:"hosts,omitempty"`
	Ranks    int       `json:"ranks"`
	Exit     *int      `json:"exit,omitempty"`    // nil while it runs, or if it was killed with its launcher
	Stopped  bool      `json:"stopped,omitempty"` // its ranks ended as they were asked to
	Step     int       `json:"step"`
	Cause    string    `json:"cause,omitempty"`
	Rank     *int      `json:"rank,omitempty"` // the rank that failed
	Host     string    `json:"host,omitempty"`
	Then     string    `json:"then,omitempty"` // Restarted or Requeued
	// NoProgress reports that the user's program was stopped and did not handle the signal.
	NoProgress bool `json:"no_progress,omitempty"`
}

// What followed an attempt without anyone asking for it.
const (
	Restarted = "restarted" // by its launcher
	Requeued  = "requeued"  // the job, by its launcher or by Slurm
)

// End returns how the attempt ended. A rank that failed distinguishes a failure from a
// stop with the same exit code.
func (a Attempt) End() End {
	switch {
	case a.Exit == nil:
		return Open
	case a.Rank != nil:
		return Failed
	}
	return endOf(*a.Exit, a.Stopped, false)
}

// attempts joins beginnings and ends. If the job of an attempt starts again with a higher
// count of requeues, the job was requeued after that attempt, also if the launcher did not
// record it: Slurm may have ended the launcher first, or have requeued the job by itself.
func attempts(events []rundir.AttemptEvent) []Attempt {
	var all []Attempt
	for _, e := range events {
		last := len(all) - 1
		switch {
		case e.Event == rundir.AttemptBegan:
			if last >= 0 && e.JobID != "" && all[last].JobID == e.JobID && e.Requeues > all[last].Requeues {
				all[last].Then = Requeued
			}
			all = append(all, Attempt{JobID: e.JobID, Requeues: max(e.Requeues, 0), Number: e.Attempt, Began: e.Time, Hosts: e.Hosts, Ranks: e.Ranks})
		case last < 0 || all[last].JobID != e.JobID || all[last].Requeues != e.Requeues:
			// Its beginning could not be written.
		case e.Event == rundir.AttemptEnded && all[last].Number == e.Attempt:
			a := &all[last]
			a.NoProgress = e.NoProgress
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
