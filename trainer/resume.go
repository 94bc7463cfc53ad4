package trainer

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// startState is the starting state, which rank 0 broadcasts.
type startState struct {
	Position  position
	OptimInit bool
	Skipped   int64
	Fresh     bool // the run has no checkpoint yet
	Stopped   bool // rank 0 was asked to stop while it verified a checkpoint
	Best      float64
	DecayAll  bool // resume as [jobs.Job.WithDecayOfAll]
}

// start brings every rank to the same state: the newest checkpoint that verifies, or new weights,
// which rank 0 saves immediately.
func (r *run) start(ctx context.Context) error {
	var h startState
	var from origin
	if r.Comm.Rank() == 0 {
		loading, disarm, cancel := r.untilStop(ctx)
		defer cancel()
		var err error
		h, from, err = r.load(loading)
		// A new run has nothing to interrupt: it stops after its first step.
		h.Stopped = disarm() && (err != nil || from.snapshot != nil)
		if err != nil && !h.Stopped {
			return err
		}
		defer from.close()
		if h.Best, err = r.bestSavedMetric(); err != nil {
			return err
		}
	}
	wire, err := binary.Append(nil, binary.LittleEndian, h)
	if err != nil {
		return err
	}
	if err := r.Comm.Do(ctx, collective.Broadcast(wire, 0)); err != nil {
		return fmt.Errorf("share the starting state: %w", err)
	}
	if _, err := binary.Decode(wire, binary.LittleEndian, &h); err != nil {
		return err
	}
	if h.Stopped {
		return errStopped
	}
	if h.DecayAll {
		r.Job = r.Job.WithDecayOfAll()
		r.train = r.Job.Train
	}
	r.optimizer.SetGroups(parameterGroups(&r.train.Optimizer)...)
	r.pos, r.skipped, r.bestMetric = h.Position, int(h.Skipped), h.Best
	r.Progress.step.Store(r.pos.Step)
	if err := r.scatterState(ctx, from, h.OptimInit); err != nil {
		return err
	}
	if r.Comm.Rank() == 0 {
		r.Observe(Event{Kind: Started, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs, Path: from.path()})
		if h.DecayAll {
			r.Observe(Event{Kind: DecayKept, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs})
		}
		r.warnStepSize(from)
		r.reportOrigin(from)
	}
	// Training allocates nothing, so the heap would never release the memory of the setup.
	debug.FreeOSMemory()
	if h.Fresh {
		err = r.save(ctx) // save also compares the ranks
	} else {
		err = r.compareAll(ctx)
	}
	if err != nil {
		return err
	}
	if r.Comm.Rank() != 0 || r.isFinished() {
		return nil
	}
	return r.checkSaving()
}

// warnStepSize warns if the number of samples per step has changed. Settings in steps, such as the
// schedule, then refer to steps of a different size.
func (r *run) warnStepSize(from origin) {
	if from.snapshot == nil || r.isFinished() {
		return
	}
	m := &from.snapshot.Manifest
	was, is := m.WorldSize*jobs.RankSamples(m.Spec), r.Comm.Size()*jobs.RankSamples(r.train.Fingerprint())
	if was != is && was > 0 {
		r.Observe(Event{Kind: Resized, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs, OldStepSamples: was, NewStepSamples: is})
	}
}

// checkSaving returns an error before the first step if the next save would fail: if it would
// reject the directory, or if the disk is too full. It warns if the disk has too little space for
// all checkpoints that the job keeps.
func (r *run) checkSaving() error {
	if err := checkpoint.CheckPrivate(r.Checkpoints); err != nil {
		return err
	}
	entries, err := checkpoint.List(r.Checkpoints)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Manifest == nil {
			continue
		}
		if err := checkpoint.CheckSpace(r.Checkpoints, e.Manifest, 1); err != nil {
			return err
		}
		more := r.retentionPolicy().Newest + 1 - len(entries) // a new one is written before an old one is removed
		if r.sharder.Strategy != ddp.DDP {
			more++ // at the end, the parts and the consolidated files exist at the same time
		}
		if err := checkpoint.CheckSpace(r.Checkpoints, e.Manifest, more); err != nil {
			r.Observe(Event{Kind: LowSpace, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs, Err: err})
		}
		return nil
	}
	return nil
}

// load opens the checkpoint to resume from, on rank 0, and returns the starting state.
func (r *run) load(ctx context.Context) (h startState, from origin, err error) {
	s, skipped, err := checkpoint.Load(ctx, r.Checkpoints)
	for _, why := range skipped {
		r.Observe(Event{Kind: CheckpointSkipped, Err: why})
	}
	if errors.Is(err, checkpoint.ErrNotFound) {
		return startState{Fresh: true}, from, nil
	}
	if ctx.Err() != nil {
		if s != nil {
			s.Close()
		}
		return h, from, context.Cause(ctx)
	}
	if err != nil {
		return h, from, unusableError{err}
	}
	m := &s.Manifest
	from.snapshot = s
	if err = r.checkCompatible(m); err == nil {
		err = r.openTensors(&from)
	}
	if err != nil {
		from.close()
		return h, from, from.wrapUnusable(err)
	}
	r.verified[m.Step] = true
	h = startState{Position: position{int64(m.Step), int64(m.Epoch), int64(m.Consumed), m.Unevaluated}, OptimInit: m.OptimInit, Skipped: int64(m.Skipped), DecayAll: r.Job.NeedsDecayOfAll(m.Spec)}
	return h, from, nil
}

// openTensors finds the tensors of a checkpoint. They must be exactly the tensors of the model and
// the optimizer.
func (r *run) openTensors(from *origin) (err error) {
	kind := from.snapshot.Manifest.Optimizer
	if kind == "" {
		kind = optim.KindSGD // the only kind before manifests recorded it
	}
	if want := r.optimizer.Kind(); kind != want {
		return fmt.Errorf("restore optimizer: the state is of kind %q, want %q", kind, want)
	}
	shapes := r.tensorShapes()
	if from.model, err = from.snapshot.Tensors(checkpoint.ModelFile, shapes[checkpoint.ModelFile]); err == nil {
		from.optimizer, err = from.snapshot.Tensors(checkpoint.OptimizerFile, shapes[checkpoint.OptimizerFile])
	}
	return err
}

// vocabulary returns the vocabulary of a text data set, to be saved with the weights.
func (r *run) vocabulary() (string, error) {
	t, ok := r.data.(data.Text)
	if !ok {
		return "", nil
	}
	text, err := t.Vocabulary().MarshalText()
	return string(text), err
}

// checkCompatible returns an error if a checkpoint was written by another run, with different
// settings, or with different data.
func (r *run) checkCompatible(m *checkpoint.Manifest) error {
	if m.Run != r.Run {
		return hints.Errorf("move the checkpoints away to train from the start; or, if they were copied here to resume from them, run `ddpbatch repair "+jobs.ShellQuote(filepath.Dir(r.Checkpoints))+"`",
			"it belongs to a different run (%q, not %q)", m.Run, r.Run)
	}
	if err := r.Job.CheckResume(m.Spec, m.SpecDigest); err != nil {
		return err
	}
	if m.DataDigest != r.data.Digest() {
		return fmt.Errorf("the training data have changed since (digest %.12s, now %.12s)", m.DataDigest, r.data.Digest())
	}
	return nil
}

// unusableError is the error for a checkpoint that exists but must not be used.
type unusableError struct{ error }

func (u unusableError) Unwrap() error { return u.error }

// ExitCode returns the exit code for a run without a usable checkpoint.
func (unusableError) ExitCode() int { return exitcode.NoCheckpoint }

// Hint returns the fix.
func (u unusableError) Hint() string { return cmp.Or(hints.Of(u.error), jobs.ChangedHint) }
