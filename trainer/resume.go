package trainer

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/checkpointing"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// startState is the starting state, which rank 0 broadcasts.
type startState struct {
	Position  position
	OptimInit bool    // a step has changed the state of the optimizer
	Skipped   int64   // number of consecutive skipped steps so far
	Fresh     bool    // the run has no checkpoint yet
	Stopped   bool    // rank 0 was asked to stop while it verified a checkpoint
	Best      float64 // best metric so far, see [checkpointing.Saver]
	DecayAll  bool    // resume as [jobs.Job.WithDecayOfAll]
}

// start brings every rank to the same state: the newest checkpoint that verifies, or new weights,
// which the run saves immediately.
func (r *run) start(ctx context.Context) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	r.layout = formatLayout(nodes)
	l, saver := &r.loop, r.loop.saver
	var h startState
	var from checkpointing.Origin
	if r.Comm.Rank() == 0 {
		loading, disarm, cancel := r.untilStop(ctx)
		defer cancel()
		var skipped []error
		if from, skipped, err = saver.Open(loading, r.checkCompatible); err == nil {
			defer from.Close()
		}
		for _, why := range skipped {
			r.Observe(Event{Kind: CheckpointSkipped, Err: why})
		}
		if h.Fresh = from.Snapshot == nil; !h.Fresh {
			m := &from.Manifest
			h = startState{Position: position{int64(m.Step), int64(m.Epoch), int64(m.Consumed), m.Unevaluated}, OptimInit: m.OptimInit, Skipped: int64(m.Skipped), DecayAll: r.Job.NeedsDecayOfAll(m.Spec)}
		}
		// A new run has nothing to interrupt: it stops after its first step.
		h.Stopped = disarm() && (err != nil || !h.Fresh)
		if err != nil && !h.Stopped {
			return err
		}
		if h.Best, err = saver.Retention.BestSaved(saver.Dir, saver.Run, int(h.Position.Step)); err != nil {
			return err
		}
	}
	wire, err := binary.Append(nil, binary.LittleEndian, h)
	if err != nil {
		return err
	}
	// Rank 0 may verify a large checkpoint for longer than an operation may take.
	if err := r.Comm.Do(collective.WithTimeout(ctx, collective.NoTimeout), collective.Broadcast(wire, 0)); err != nil {
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
	saver.State.Optimizer.SetGroups(parameterGroups(&r.train.Optimizer)...)
	l.pos, l.skipped, saver.Best = h.Position, int(h.Skipped), h.Best
	r.Progress.step.Store(l.pos.Step)
	if err := saver.State.Scatter(ctx, from, h.OptimInit, r.newWeights); err != nil {
		return err
	}
	if r.Comm.Rank() == 0 {
		r.reportStart(from, h.DecayAll)
	}
	// Training allocates nothing, so the heap would never release the memory of the setup.
	debug.FreeOSMemory()
	if h.Fresh {
		err = l.save(ctx, saver.Save) // which also compares the ranks
	} else {
		err = saver.State.CompareAll(ctx, l.pos.Step)
	}
	if err != nil || r.Comm.Rank() != 0 || l.isFinished() {
		return err
	}
	scarce, err := saver.CheckSpace()
	if scarce != nil {
		e := l.event(LowSpace)
		e.Err = scarce
		r.Observe(e)
	}
	return err
}

// reportStart reports the start on rank 0, and what differs from the run that saved the checkpoint:
// the weight decay, the number of samples per step, and the layout of the ranks. Settings in steps,
// such as the schedule, refer to steps of the new size. It also reports if the ranks did not compare
// their weights before the checkpoint was saved, as in older versions.
func (r *run) reportStart(from checkpointing.Origin, decayAll bool) {
	e := r.loop.event(Started)
	if from.Snapshot != nil {
		e.Path = from.Path
	}
	r.Observe(e)
	if decayAll {
		r.Observe(r.loop.event(DecayKept))
	}
	if from.Snapshot == nil || r.loop.isFinished() {
		return
	}
	m := &from.Manifest
	was, is := m.WorldSize*jobs.RankSamples(m.Spec), r.Comm.Size()*jobs.RankSamples(r.train.Fingerprint())
	if was != is && was > 0 {
		e := r.loop.event(Resized)
		e.OldStepSamples, e.NewStepSamples = was, is
		r.Observe(e)
	}
	if m.Replicas == "" && m.WorldSize > 1 {
		r.Observe(r.loop.event(Uncompared))
	}
	if m.Layout != "" && m.Layout != r.layout {
		e := r.loop.event(Relocated)
		e.OldLayout, e.Layout = m.Layout, r.layout
		r.Observe(e)
	}
}

// newSaver returns a Saver with the settings of the job.
func (r *run) newSaver(state *checkpointing.State) *checkpointing.Saver {
	c := r.Job.Checkpoint
	retention := checkpoint.Retention{Newest: c.Keep, Best: string(c.KeepBest), Highest: c.KeepBest == jobs.MetricAccuracy}
	switch c.KeepEvery.Unit {
	case jobs.Steps:
		retention.Steps = c.KeepEvery.N
	case jobs.Epochs:
		retention.Epochs = c.KeepEvery.N
	}
	return checkpointing.New(state, checkpointing.Options{
		Dir: r.Checkpoints, Run: r.Run, Retention: retention, Async: c.Async, ContinueOnError: c.OnError == jobs.SaveErrorContinue,
		Threads: r.Threads, CheckDir: r.CheckRunDir, Manifest: r.manifest, MismatchHint: jobs.ChangedHint,
		Saved: func(m *checkpoint.Manifest, path string, took, stalled time.Duration) {
			r.Observe(Event{Kind: Saved, Step: m.Step, Epoch: m.Epoch, Epochs: r.train.Epochs, Path: path, Took: took, Stalled: stalled})
		},
		Unsaved: func(err error) {
			e := r.loop.event(Unsaved)
			e.Err = err
			r.Observe(e)
		},
	})
}

// manifest returns the manifest of the current state, except for what the Saver knows.
func (r *run) manifest() (*checkpoint.Manifest, error) {
	l := &r.loop
	m := &checkpoint.Manifest{
		Program: r.Program,
		Step:    int(l.pos.Step), Epoch: int(l.pos.Epoch), Consumed: int(l.pos.Consumed), Unevaluated: l.pos.Unevaluated, Skipped: l.skipped, Finished: l.isFinished(),
		Seed: r.train.Seed, Spec: r.train.Fingerprint(), SpecDigest: r.Job.TrainDigest(),
		DataDigest: r.data.Digest(), Optimizer: string(r.train.Optimizer.Kind), Metrics: map[string]checkpoint.Number{}, Layout: r.layout,
	}
	for k, v := range l.metrics {
		m.Metrics[k] = checkpoint.Number(v)
	}
	if t, ok := r.data.(data.Text); ok {
		vocabulary, err := t.Vocabulary().MarshalText()
		if err != nil {
			return nil, err
		}
		m.Vocabulary = string(vocabulary)
	}
	return m, nil
}

// checkCompatible returns an error if a checkpoint was written by a different run, with different
// settings, or with different data.
func (r *run) checkCompatible(m *checkpoint.Manifest) error {
	if m.Run != r.Run {
		return hints.Errorf("move the checkpoints away to train from the start; or, if they were copied here to resume from them, run `ddpbatch repair "+
			jobs.ShellQuote(filepath.Dir(r.Checkpoints))+"`", "it belongs to a different run (%q, not %q)", m.Run, r.Run)
	}
	if err := r.Job.CheckResume(m.Spec, m.SpecDigest); err != nil {
		return err
	}
	if m.DataDigest != r.data.Digest() {
		return fmt.Errorf("the training data have changed since (digest %.12s, now %.12s)", m.DataDigest, r.data.Digest())
	}
	return nil
}
