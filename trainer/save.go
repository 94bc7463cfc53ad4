package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// pendingSave is a checkpoint in progress: the part that this rank writes.
type pendingSave struct {
	at      position
	began   time.Time
	stalled time.Duration // how long training waited for it
	final   bool          // final checkpoint, in which rank 0 consolidates the parts

	manifest *checkpoint.Manifest         // on rank 0
	pieces   map[string][]checkpoint.Part // this rank's part of the state, by file
	shapes   map[string]map[string][]int  // of whole tensors, by file and tensor

	// The following fields are for sharded checkpoints.
	sharded   bool
	target    checkpoint.Writer // on rank 0
	partDir   string            // directory for this rank's part; empty if there is nothing to write
	files     []checkpoint.File // files that this rank has written; after exchangeResults, the files of all ranks
	exchanged bool              // all ranks have exchanged the results of writing

	path      string        // on rank 0: path of the checkpoint
	err       error         // write error, or a value that is not finite
	done      chan struct{} // async: closed when the background goroutine ends
	idleSince time.Time     // async: time when the background goroutine ended
}

// save writes the current state and returns when it is on disk. Rank 0 writes all of it, or, if the
// state is sharded, each rank writes its part. When training is finished, rank 0 consolidates the
// parts, so that other programs can read the result.
func (r *run) save(ctx context.Context) error {
	s, err := r.saveSync(ctx)
	if s == nil || err != nil {
		return err
	}
	return r.finishSave(s)
}

// savePeriodic saves a periodic checkpoint. It may write in the background, and the job may
// configure that training continues after an error.
func (r *run) savePeriodic(ctx context.Context) error {
	if r.Job.Checkpoint.Async {
		return r.saveAsync(ctx)
	}
	s, err := r.saveSync(ctx)
	if s == nil || err != nil {
		return err
	}
	return r.continueAfterSaveError(r.finishSave(s))
}

func (r *run) saveSync(ctx context.Context) (*pendingSave, error) {
	defer r.Progress.enter(phaseSaving)()
	defer r.Trace.Add(trace.Save, 0, r.Trace.Now())
	if err := r.waitAsyncSave(ctx); err != nil {
		return nil, err
	}
	s, err := r.beginSave(ctx)
	if s == nil || err != nil {
		return nil, err
	}
	r.writeSave(s)
	if err := r.exchangeResults(ctx, s); err != nil {
		return nil, err
	}
	r.commitSave(ctx, s)
	s.stalled = time.Since(s.began)
	return s, nil
}

// beginSave compares the state of all ranks, then returns a pendingSave for it. It returns nil on a
// rank that has nothing to write. If the save cannot succeed, the pendingSave's err is the reason.
// The returned error means that communication failed or that the ranks differ.
func (r *run) beginSave(ctx context.Context) (*pendingSave, error) {
	if err := r.compareAll(ctx); err != nil {
		return nil, err
	}
	s := &pendingSave{at: r.pos, began: time.Now(), final: r.isFinished(), sharded: r.sharder.Strategy != ddp.DDP}
	if !s.sharded && r.Comm.Rank() != 0 {
		return nil, nil
	}
	s.shapes = r.tensorShapes()
	if r.Comm.Rank() == 0 {
		if s.manifest, s.err = r.manifest(); s.err == nil {
			s.err = r.checkRunDirMoved(s)
		}
	}
	if s.sharded {
		if err := r.createPartDir(ctx, s); err != nil {
			return nil, err
		}
	}
	s.pieces = r.stateParts()
	return s, nil
}

// writeSave writes this rank's part. It reads nothing that training changes.
func (r *run) writeSave(s *pendingSave) {
	if s.err == nil {
		s.err = s.checkFinite()
	}
	switch {
	case s.err != nil:
	case s.sharded:
		s.writeParts(r.Comm.Rank())
	default:
		files := checkpoint.Files{}
		for name, shapes := range s.shapes {
			files[name] = nil // an optimizer may be stateless
			for _, p := range s.pieces[name] {
				files[name] = append(files[name], safetensors.Tensor{Name: p.Tensor, Shape: shapes[p.Tensor], Data: p.Data})
			}
		}
		s.path, s.err = checkpoint.Save(r.Checkpoints, s.manifest, files)
	}
}

// commitSave makes the checkpoint visible, on rank 0, and prunes old checkpoints.
func (r *run) commitSave(ctx context.Context, s *pendingSave) {
	if r.Comm.Rank() != 0 || s.err != nil {
		return
	}
	if s.sharded {
		s.commitParts()
	}
	if s.err == nil {
		err := checkpoint.Prune(ctx, r.Checkpoints, r.Run, int(s.at.Step), r.retentionPolicy(), r.verified)
		if ctx.Err() == nil { // otherwise the attempt ends, and the checkpoint is saved
			s.err = err
		}
	}
}

// checkRunDirMoved returns an error if the run directory was moved or deleted.
func (r *run) checkRunDirMoved(s *pendingSave) error {
	if r.CheckRunDir == nil {
		return nil
	}
	if err := r.CheckRunDir(); err != nil {
		return runDirMovedError{s.wrapError(err)}
	}
	return nil
}

// runDirMovedError is the error for a save into a run directory that was moved or deleted.
type runDirMovedError struct{ error }

// Unwrap returns the cause, which has a hint.
func (d runDirMovedError) Unwrap() error { return d.error }

// finishSave reports a complete save to the observer, or returns why it failed.
func (r *run) finishSave(s *pendingSave) error {
	if s.err != nil && !errors.As(s.err, &runDirMovedError{}) {
		// After a move during the save, files are missing.
		if err := r.checkRunDirMoved(s); err != nil {
			s.err = err
		}
	}
	if s.err == nil && r.Comm.Rank() == 0 {
		r.Observe(Event{Kind: Saved, Step: int(s.at.Step), Epoch: int(s.at.Epoch), Epochs: r.train.Epochs, Path: s.path,
			Took: time.Since(s.began), Stalled: s.stalled})
	}
	return s.err
}

// continueAfterSaveError reports err and returns nil if the job continues after a failed save:
// earlier checkpoints are intact, and the next save is a new attempt. It returns err if a parameter
// is not finite or if the run directory was moved. In the latter case no later save could succeed.
func (r *run) continueAfterSaveError(err error) error {
	if err == nil || r.Job.Checkpoint.OnError != jobs.SaveErrorContinue || errors.As(err, &divergedError{}) || errors.As(err, &runDirMovedError{}) {
		return err
	}
	r.Observe(Event{Kind: Unsaved, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs, Err: err})
	return nil
}

// manifest returns the manifest of the current state.
func (r *run) manifest() (*checkpoint.Manifest, error) {
	vocabulary, err := r.vocabulary()
	if err != nil {
		return nil, err
	}
	m := &checkpoint.Manifest{
		Run: r.Run, Created: time.Now().UTC(), Program: r.Program,
		Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Consumed: int(r.pos.Consumed), Unevaluated: r.pos.Unevaluated, Skipped: r.skipped, Finished: r.isFinished(),
		Seed: r.train.Seed, WorldSize: r.Comm.Size(), Spec: r.train.Fingerprint(), SpecDigest: r.Job.TrainDigest(),
		DataDigest: r.data.Digest(), Vocabulary: vocabulary, Optimizer: string(r.train.Optimizer.Kind), OptimInit: r.optimizer.StateBy(readNothing).Initialized,
		Metrics: map[string]checkpoint.Number{}, Replicas: r.replicas(), Layout: r.layout,
	}
	for k, v := range r.lastMetrics {
		m.Metrics[k] = checkpoint.Number(v)
	}
	return m, nil
}

// checkFinite returns an error if a parameter is not finite.
func (s *pendingSave) checkFinite() error {
	for _, p := range s.pieces[checkpoint.ModelFile] {
		for _, v := range p.Data {
			const exponent = 0xff << 23
			if math.Float32bits(v)&exponent == exponent {
				return divergedError{fmt.Errorf("parameter %q is not finite after step %d", p.Tensor, s.at.Step), s.at.Step == 0}
			}
		}
	}
	return nil
}

// stateParts returns this rank's part of the state: host memory itself, or copies of device memory.
func (r *run) stateParts() map[string][]checkpoint.Part {
	read := r.stateReader()
	var model, optimizer []checkpoint.Part
	r.sharder.EachRange(r.values(read), func(i, at int, values []float32) {
		model = append(model, checkpoint.Part{Tensor: r.params[i].Name, At: at, Data: values})
	})
	_, arrays, single := r.optimizerState(read)
	for _, a := range arrays {
		r.sharder.EachRange(a.values, func(i, at int, values []float32) {
			optimizer = append(optimizer, checkpoint.Part{Tensor: a.prefix + r.params[i].Name, At: at, Data: values})
		})
	}
	if r.Comm.Rank() == 0 {
		for _, t := range single {
			optimizer = append(optimizer, checkpoint.Part{Tensor: t.Name, Data: t.Data})
		}
	}
	return map[string][]checkpoint.Part{checkpoint.ModelFile: model, checkpoint.OptimizerFile: optimizer}
}
