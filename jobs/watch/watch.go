// Package watch determines the status of a run and formats it. It reads the run directory and,
// for a run on a cluster, uses Slurm's report about the job. It therefore also works for a run
// on another machine. The only process that it checks is a launcher on this host.
//
// The package guarantees:
//
//   - It omits values that it cannot read, and never guesses them.
//   - A phase is one of a few fixed words with exactly one meaning each.
//   - Lines and tables contain no control characters from other sources. The fields of a [Status] may.
//   - The lines of a [View] fit the given width.
//
// The package does not query Slurm, does not write into the run directory, and does not print.
// Its callers do.
package watch

import (
	"context"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/usage"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// A ChainedJob is a job that continues the run after the end of its last job.
type ChainedJob struct {
	Job   string      `json:"job_id"`
	State slurm.State `json:"state,omitempty"` // empty if unknown
}

// Status is the status of a run. Unknown values are empty or nil.
type Status struct {
	Values   map[string]string `json:"values,omitempty"`   // of a trial in a sweep
	Elements []Status          `json:"elements,omitempty"` // trials of a sweep
	Name     string            `json:"name"`
	Dir      string            `json:"run_dir"`
	Phase    Phase             `json:"phase,omitempty"` // empty for a sweep
	Detail   string            `json:"detail,omitempty"`
	Advice   string            `json:"hint,omitempty"` // what to do in this phase

	Job      string      `json:"job_id,omitempty"` // empty if never submitted
	State    slurm.State `json:"state,omitempty"`
	Reason   string      `json:"reason,omitempty"` // from Slurm; for a sweep, the number of trials in each phase
	ExitCode string      `json:"exit_code,omitempty"`
	Nodes    string      `json:"nodes,omitempty"`
	Start    string      `json:"start,omitempty"` // local time of the cluster; expected start while the job is queued
	Elapsed  string      `json:"elapsed,omitempty"`
	Requeues int         `json:"-"`        // by Slurm; -1 if unknown
	Restarts int         `json:"restarts"` // of the run, see package outcome
	// NoProgress is the number of requeues before which the program saved nothing.
	NoProgress int `json:"requeues_without_progress,omitempty"`

	Step       *int              `json:"step,omitempty"`
	Steps      int               `json:"steps,omitempty"`
	Epoch      *int              `json:"epoch,omitempty"`
	Epochs     int               `json:"epochs,omitempty"`
	Loss       *metrics.Number   `json:"loss,omitempty"`
	Accuracy   *metrics.Number   `json:"accuracy,omitempty"`
	Train      *metrics.Record   `json:"train,omitempty"` // last training record of metrics.jsonl
	Eval       *metrics.Record   `json:"eval,omitempty"`  // last evaluation record of metrics.jsonl
	Live       *rundir.Live      `json:"live,omitempty"`
	Checkpoint *int              `json:"checkpoint_step,omitempty"`
	Saved      *Checkpoint       `json:"checkpoint,omitempty"`
	Attempts   []outcome.Attempt `json:"attempts,omitempty"`
	Finished   bool              `json:"finished"`
	Chain      []ChainedJob      `json:"chain,omitempty"`   // jobs that follow in a chain
	Pending    bool              `json:"pending,omitempty"` // it is unknown whether Slurm has a job of this run
	Failure    string            `json:"failure,omitempty"`
	LastLines  []string          `json:"last_lines,omitempty"` // of the rank that failed first
	Finding    *outcome.Finding  `json:"finding,omitempty"`    // known failure in the log
	// Usage holds the CPU time, the memory, and the GPU use of the ranks of a user's program. It is
	// nil until [Status.AddUsage] is called.
	Usage []usage.Node `json:"usage,omitempty"`
	// Components are the components in the newest attempt, on all nodes. It is nil until
	// [Status.AddComponents] is called.
	Components []rundir.ComponentState `json:"components,omitempty"`

	record        outcome.State
	launchFailure *launchFailure
	dead          bool      // the launcher ran without Slurm on this host and was killed
	launched      time.Time // start of the launcher that runs without Slurm, or zero
	remote        bool      // that launcher is on a different host, and may have been killed
}

// A Checkpoint is the newest checkpoint of a run.
type Checkpoint struct {
	Step    int       `json:"step"`
	Time    time.Time `json:"time,omitzero"` // time when it was written
	Bytes   int64     `json:"bytes,omitempty"`
	Path    string    `json:"path"`
	Damaged string    `json:"damaged,omitempty"` // what is corrupt
	Newer   string    `json:"newer,omitempty"`   // why this version cannot read it: a newer version wrote it
	// Verified reports that every byte was read and compared with its digest; see
	// [Status.Verify].
	Verified bool `json:"verified"`
}

// Read returns the status of the run in d, as far as the run directory contains it. Job is the
// ID of the run's last job, or empty. Tail holds the metrics that were read earlier, or is
// nil.
func Read(d rundir.Dir, name, job string, tail *MetricsTail) Status {
	s := Status{Name: name, Dir: d.Path, Job: job, Requeues: -1}
	if job != "" {
		s.State = slurm.StateUnknown
	}
	if tail == nil {
		tail = NewMetricsTail(d.Metrics())
	}
	tail.Update()
	s.addMetrics(tail)
	if l, ok := d.ReadLive(); ok {
		s.Live = &l
	}
	if l, ok := d.Launcher(); ok {
		s.remote = !l.IsHere()
		if s.dead = !s.remote && !l.IsRunning(); !s.dead {
			s.launched = l.Since
		}
	}
	s.record = outcome.Read(d, job)
	s.Attempts = s.record.Attempts
	if e := s.record.Newest; e != nil {
		s.Saved = newest(*e)
		s.Checkpoint = &s.Saved.Step
	}
	s.NoProgress = s.record.RequeuesWithoutProgress()
	s.launchFailure = findLaunchFailure(d, s.record)
	return s
}

// AddUsage adds the CPU time, the memory, and the GPU use of the ranks in the newest attempt that has
// these measurements. There is a file for each node.
func (s *Status) AddUsage(d rundir.Dir) {
	files, err := d.ReadUsage(usage.MaxBytes)
	if err != nil {
		return // the other files of the directory show the problem
	}
	s.Usage = usage.Parse(files)
}

// AddComponents adds the states of the components in the newest attempt. There is a file for each
// node. The newest attempt may have no components, or may not have started one, so states of
// earlier attempts do not count. If the ranks ran without a launcher, no attempt is known, and
// AddComponents adds the newest states.
func (s *Status) AddComponents(d rundir.Dir) {
	all, _ := d.ReadComponents() // the other files of the directory show a problem
	s.Components = slices.DeleteFunc(all, func(c rundir.ComponentState) bool { return c.Attempt < len(s.Attempts) })
}

func newest(e checkpoint.Entry) *Checkpoint {
	c := &Checkpoint{Step: e.Step, Path: e.Path}
	switch {
	case e.IsNewer():
		c.Newer = e.Err.Error()
		return c
	case e.Err != nil:
		c.Damaged = e.Err.Error()
		return c
	}
	c.Time = e.Manifest.Created
	for _, f := range e.Manifest.Files {
		c.Bytes += f.Bytes
	}
	return c
}

// Verify reads the whole newest checkpoint and compares it with its digests. It changes
// nothing if ctx is done before that.
func (s *Status) Verify(ctx context.Context) {
	if s.Saved == nil || s.Saved.Damaged != "" || s.Saved.Newer != "" {
		return
	}
	if err := checkpoint.Verify(ctx, s.Saved.Path); err != nil {
		if ctx.Err() != nil {
			return // the result is unknown
		}
		_, _, before := s.resumablePhase(s.Phase)
		s.Saved.Damaged = err.Error()
		if s.Advice == before {
			_, _, s.Advice = s.resumablePhase(s.Phase)
		}
		return
	}
	s.Saved.Verified = true
}

// AddJob adds Slurm's report about the job.
func (s *Status) AddJob(j slurm.JobState) {
	s.State, s.Reason, s.ExitCode, s.Nodes, s.Requeues = j.State, j.Reason, j.ExitCode, j.Nodes, j.Restarts
	s.Start, s.Elapsed = j.Start, j.Elapsed
}

// LastEnd returns how the launcher of the last job ended, or nil if no end is recorded.
func (s *Status) LastEnd() *rundir.End { return s.record.End }

func (s *Status) addMetrics(f *MetricsTail) {
	s.Train, s.Eval = f.Train, f.Eval
	if f.Train != nil {
		s.Loss = f.Train.Loss
	}
	if f.Eval != nil {
		s.Accuracy = f.Eval.Accuracy
	}
	if last := f.last; last != nil {
		s.Step, s.Epoch = &last.Step, &last.Epoch
		s.Steps, s.Epochs = last.Steps, last.Epochs
		if s.Steps == 0 && f.Train != nil {
			s.Steps = f.Train.Steps
		}
	}
}
