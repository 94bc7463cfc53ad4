// Package checkpointing saves and restores the state of one rank: synchronous and asynchronous
// saves, resume, and the comparison of the ranks before each save.
//
// It guarantees:
//
//   - No state is saved before all ranks agree on it, and no parameter that is not finite is saved.
//   - An asynchronous save has the same contents as a synchronous one. Training waits only while
//     this rank's state is copied.
//   - If one rank cannot write its part, the save fails on all ranks, and no checkpoint is created.
//   - A save is reported only after its checkpoint is on disk, and its failure as soon as it is
//     known. Existing checkpoints stay intact.
//
// A [Saver] is a state machine whose states are phases. It needs no job and decides neither when to
// save nor what a failed save means for the job: the caller sets both. Package checkpoint defines
// the files.
package checkpointing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// phase is the phase of a save on one rank.
type phase string

// The phases of a save.
const (
	idle       phase = "idle"       // no save is in progress
	copying    phase = "copying"    // the ranks compare their states, and this rank copies its part; training waits
	writing    phase = "writing"    // this rank writes its part, or, if it has the whole state, the checkpoint
	written    phase = "written"    // this rank has written its part, or could not, and waits for the other ranks
	committing phase = "committing" // rank 0 creates the checkpoint from the parts of all ranks
	committed  phase = "committed"  // nothing is left to do, except to report
	failed     phase = "failed"     // the save has failed, which is not reported yet
)

// nextPhases lists the phases that may follow each phase.
var nextPhases = map[phase][]phase{
	idle:       {copying},
	copying:    {writing, idle}, // idle: this rank has nothing to write, or the ranks differ
	writing:    {written, committed, failed},
	written:    {committing, committed, failed},
	committing: {committed, failed},
	committed:  {idle},
	failed:     {idle},
}

// Options configures a [Saver].
type Options struct {
	Dir       string // directory of the checkpoints
	Run       string // ID of the run
	Retention checkpoint.Retention
	// Async makes periodic saves write in the background.
	Async bool
	// ContinueOnError makes a failed periodic save a warning, which is passed to Unsaved.
	ContinueOnError bool
	Threads         int // maximum number of threads that copy; 0 means one per core
	// CheckDir, unless nil, returns an error if the parent directory of Dir was moved or deleted.
	CheckDir func() error
	// Manifest returns a manifest with the position in the data and the settings. The Saver adds
	// what it knows itself.
	Manifest func() (*checkpoint.Manifest, error)
	// Saved is called on rank 0 after a save, with the total time, and the time for which training
	// waited.
	Saved func(m *checkpoint.Manifest, path string, took, stalled time.Duration)
	// Unsaved is called with the error of a failed save, or of a failed removal of old checkpoints,
	// after which training continues.
	Unsaved func(error)
	// MismatchHint is the fix for a checkpoint that cannot be used, if its error has no hint.
	MismatchHint string
}

// A Saver saves the state of one rank. The training goroutines of all ranks call its methods in the
// same order.
type Saver struct {
	Options
	Best       float64 // best metric of Retention so far, or NaN
	State      *State
	phase      phase
	current    *save        // since writing; nil if idle or copying
	begun      bool         // a save has begun since the last waitAll; equal on all ranks
	verified   map[int]bool // by step: whether its checkpoint verifies, see checkpoint.Prune
	copyBuffer []float32    // memory for copies of an asynchronous save
}

// New returns an idle Saver. Asynchronous saves require [Saver.AllocCopies].
func New(state *State, o Options) *Saver {
	return &Saver{Options: o, State: state, phase: idle, verified: map[int]bool{}, Best: math.NaN()}
}

// save is a save in progress.
type save struct {
	step     int64
	began    time.Time
	stalled  time.Duration // how long training waited for it
	async    bool
	required bool // its failure always ends the run

	manifest *checkpoint.Manifest         // on rank 0
	pieces   map[string][]checkpoint.Part // this rank's part of the state, by file
	shapes   map[string]map[string][]int  // of whole tensors, by file and tensor

	// The following fields are for sharded checkpoints.
	sharded bool
	target  checkpoint.Writer // on rank 0
	partDir string            // directory for this rank's part; empty if there is nothing to write
	files   []checkpoint.File // files that this rank has written; after exchange, the files of all ranks

	path     string        // on rank 0: path of the checkpoint
	err      error         // write error, or a value that is not finite
	pruneErr error         // on rank 0: why old checkpoints remain; this one is saved
	done     chan struct{} // closed when the current task has ended
	ended    time.Time     // when the current task ended
}

// enter begins a phase.
func (s *Saver) enter(p phase) {
	if !slices.Contains(nextPhases[s.phase], p) {
		panic(fmt.Sprintf("checkpointing: internal error: %s after %s", p, s.phase))
	}
	s.phase = p
}

// currentPhase returns the phase of the save in progress. It enters the next phase first if the task
// of the current one has ended.
func (s *Saver) currentPhase() phase {
	if s.phase != writing && s.phase != committing {
		return s.phase
	}
	select {
	case <-s.current.done:
		if s.phase == writing && s.current.sharded {
			s.enter(written)
		} else {
			s.end()
		}
	default:
	}
	return s.phase
}

// end enters committed or failed.
func (s *Saver) end() {
	if s.current.err != nil {
		s.enter(failed)
	} else {
		s.enter(committed)
	}
}

// Save writes the state after a step and returns when the checkpoint is on disk. Rank 0 writes the
// whole state, or, if the state is sharded, each rank writes its part. If training is finished,
// rank 0 consolidates the parts, so that other programs can read the result.
func (s *Saver) Save(ctx context.Context, step int64) error {
	return s.save(ctx, save{step: step, required: true})
}

// SavePeriodic saves like [Saver.Save]. With Async, it returns when the state is copied,
// and [Saver.Poll] completes the save. There is memory for one copy only, so it first waits for a
// save in progress, and no requested checkpoint is skipped.
func (s *Saver) SavePeriodic(ctx context.Context, step int64) error {
	return s.save(ctx, save{step: step, async: s.Async})
}

func (s *Saver) save(ctx context.Context, c save) error {
	defer s.State.Trace.Add(trace.Save, 0, s.State.Trace.Now())
	called := time.Now()
	if err := s.waitAll(ctx); err != nil {
		return err
	}
	s.enter(copying)
	s.begun = true
	hasPart, err := s.copyState(ctx, &c)
	if hasPart {
		s.current = &c
		s.enter(writing)
		c.start(func() { s.write(ctx, &c) })
	} else {
		s.enter(idle)
	}
	if c.async || err != nil {
		c.stalled = time.Since(called)
		return err
	}
	return s.waitAll(ctx)
}

// waitAll completes the save in progress on all ranks. Otherwise, the other ranks would wait for a
// slow disk in their next operation, whose timeout is for the network. Without a save since the last
// call, no rank waits for a disk, and the timeout applies.
func (s *Saver) waitAll(ctx context.Context) error {
	if err := s.Wait(ctx); err != nil {
		return err
	}
	if s.begun {
		ctx = untimed(ctx)
	}
	s.begun = false
	return s.State.Comm.Do(ctx, collective.Barrier())
}

// untimed returns a context for operations in which ranks wait for the disk of another rank. A
// failure of that rank still ends them.
func untimed(ctx context.Context) context.Context {
	return collective.WithTimeout(ctx, collective.NoTimeout)
}

// start runs a task, in the background if the save is asynchronous. Tasks read nothing that
// training changes.
func (c *save) start(task func()) {
	c.done = make(chan struct{})
	run := func() {
		defer close(c.done)
		task()
		c.ended = time.Now()
	}
	if c.async {
		go run()
	} else {
		run()
	}
}

// InFlight reports whether this rank is still writing its part of a sharded checkpoint. Each rank
// sends the result with the gradients of every step.
func (s *Saver) InFlight() bool { return s.currentPhase() == writing && s.current.sharded }

// Poll advances an asynchronous save after a step, without waiting for the disk. Step is the newest
// step with a known outcome; inFlight reports whether a rank's [Saver.InFlight] was true in it.
// Every rank passes the same values, so all ranks exchange their results after the same step.
func (s *Saver) Poll(ctx context.Context, step int64, inFlight bool) error {
	if s.currentPhase() == written {
		if inFlight || step < s.current.step { // the outcome may belong to a step before the save
			return nil
		}
		if err := s.exchange(ctx); err != nil {
			return err
		}
	}
	if s.phase == committed || s.phase == failed {
		return s.report()
	}
	return nil
}

// Wait completes the save in progress, if there is one.
func (s *Saver) Wait(ctx context.Context) error {
	for {
		var err error
		switch s.currentPhase() {
		case writing, committing:
			select {
			case <-s.current.done:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		case written:
			err = s.exchange(ctx)
		case committed, failed:
			err = s.report()
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Close waits for the task in the background when training fails, so that no goroutine remains. The
// checkpoint has a state from before the failure, so it is valid if this rank could complete it
// without the others.
func (s *Saver) Close() {
	if s.current == nil {
		return
	}
	<-s.current.done
	if s.currentPhase() == committed {
		_ = s.report()
	}
}

// TraceInFlight adds the asynchronous save in progress to the trace, which ends.
func (s *Saver) TraceInFlight() {
	if c := s.current; c != nil && c.async {
		s.State.Trace.Add(trace.AsyncSave, 0, c.began)
	}
}

// exchange exchanges the results of writing. Then rank 0 begins to commit.
func (s *Saver) exchange(ctx context.Context) error {
	c, began := s.current, time.Now()
	if c.async {
		defer s.State.Trace.Add(trace.Save, 0, s.State.Trace.Now())
	}
	if err := s.exchangeResults(ctx, c); err != nil {
		c.err = err
		s.enter(failed)
		return err
	}
	if s.State.Comm.Rank() != 0 || c.err != nil {
		s.end()
		return nil
	}
	s.enter(committing)
	c.start(func() {
		if c.commitParts(); c.err == nil {
			s.prune(ctx, c)
		}
	})
	c.stalled += time.Since(began)
	return nil
}

// report ends a save in phase committed or failed: it reports the checkpoint, or returns why the
// save or the removal of old checkpoints failed, unless training continues. It does not continue if a
// parameter is not finite or if the directory was moved, because then no later save could succeed.
func (s *Saver) report() error {
	c := s.current
	s.current = nil
	s.enter(idle)
	took := time.Since(c.began)
	if c.async {
		s.State.Trace.AddUntil(trace.AsyncSave, 0, c.began, c.ended)
	} else {
		c.stalled = took
	}
	err := c.err
	if err == nil {
		if s.State.Comm.Rank() == 0 {
			s.Saved(c.manifest, c.path, took, c.stalled)
		}
		if err = c.pruneErr; err == nil {
			return nil
		}
	}
	if !errors.As(err, &movedError{}) {
		if moved := s.checkMoved(c); moved != nil { // after a move during the save, files are missing
			err = moved
		}
	}
	if c.required && c.err != nil || !s.ContinueOnError || errors.As(err, &NonFiniteError{}) || errors.As(err, &movedError{}) {
		return err
	}
	s.Unsaved(err)
	return nil
}
