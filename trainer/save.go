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

// saving is a checkpoint in progress: the part that this rank writes.
type saving struct {
	at      position
	began   time.Time
	stalled time.Duration // how long training waited for it
	whole   bool          // final checkpoint, which is written without parts

	manifest *checkpoint.Manifest // on rank 0
	pieces   map[string][]checkpoint.Part
	shapes   map[string]map[string][]int // of whole tensors

	// The following fields are for sharded checkpoints.
	divided bool
	folder  checkpoint.Saving // on rank 0
	into    string            // directory for this rank's part; empty if there is nothing to write
	files   []checkpoint.File // files that this rank has written; after agree, the files of all ranks
	told    bool              // all ranks have exchanged the results of writing

	path      string        // on rank 0: path of the checkpoint
	err       error         // write error, or a value that is not finite
	done      chan struct{} // async: closed when the background goroutine ends
	idleSince time.Time     // async: time when the background goroutine ended
}

// save writes the current state and returns when it is on disk. Rank 0 writes all of it, or, if the
// state is sharded, each rank writes its part. When training is finished, rank 0 consolidates the
// parts, so that other programs can read the result.
func (r *run) save(ctx context.Context) error {
	s, err := r.saveNow(ctx)
	if s == nil || err != nil {
		return err
	}
	return r.saved(s)
}

// saveDue saves a periodic checkpoint. It may write in the background, and the job may configure
// that training continues after an error.
func (r *run) saveDue(ctx context.Context) error {
	if r.Job.Checkpoint.Async {
		return r.saveBehind(ctx)
	}
	s, err := r.saveNow(ctx)
	if s == nil || err != nil {
		return err
	}
	return r.tolerate(r.saved(s))
}

func (r *run) saveNow(ctx context.Context) (*saving, error) {
	defer r.Progress.enter(phaseSaving)()
	defer r.Trace.Add(trace.Save, 0, r.Trace.Now())
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	s, err := r.begin(ctx)
	if s == nil || err != nil {
		return nil, err
	}
	r.write(s)
	if err := r.agree(ctx, s); err != nil {
		return nil, err
	}
	r.commit(ctx, s)
	s.stalled = time.Since(s.began)
	return s, nil
}

// begin returns a saving of the current state after all ranks have compared theirs. It returns nil
// on a rank that has nothing to write. A reason not to save is in the saving's err. The returned
// error means that communication failed or that the ranks differ.
func (r *run) begin(ctx context.Context) (*saving, error) {
	if err := r.compareAll(ctx); err != nil {
		return nil, err
	}
	s := &saving{at: r.at, began: time.Now(), whole: r.finished(), divided: r.sharder.Strategy != ddp.DDP}
	if !s.divided && r.Comm.Rank() != 0 {
		return nil, nil
	}
	s.shapes = r.shapes()
	if r.Comm.Rank() == 0 {
		if s.manifest, s.err = r.manifest(); s.err == nil {
			s.err = r.checkPlace(s)
		}
	}
	if s.divided {
		if err := r.openParts(ctx, s); err != nil {
			return nil, err
		}
	}
	s.pieces = r.pieces()
	return s, nil
}

// write writes this rank's part. It reads nothing that training changes.
func (r *run) write(s *saving) {
	if s.err == nil {
		s.err = s.sane()
	}
	switch {
	case s.err != nil:
	case s.divided:
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

// commit makes the checkpoint visible, on rank 0, and prunes old checkpoints.
func (r *run) commit(ctx context.Context, s *saving) {
	if r.Comm.Rank() != 0 || s.err != nil {
		return
	}
	if s.divided {
		s.commitParts()
	}
	if s.err == nil {
		err := checkpoint.Prune(ctx, r.Checkpoints, r.Run, int(s.at.Step), r.keep(), r.good)
		if ctx.Err() == nil { // otherwise the attempt ends, and the checkpoint is saved
			s.err = err
		}
	}
}

// checkPlace returns an error if the run directory was moved or deleted.
func (r *run) checkPlace(s *saving) error {
	if r.CheckPlace == nil {
		return nil
	}
	if err := r.CheckPlace(); err != nil {
		return displaced{s.failed(err)}
	}
	return nil
}

// displaced is the error for a save into a run directory that was moved or deleted.
type displaced struct{ error }

// Unwrap returns the cause, which has a hint.
func (d displaced) Unwrap() error { return d.error }

// saved reports a complete save to the observer, or returns why it failed.
func (r *run) saved(s *saving) error {
	if s.err != nil && !errors.As(s.err, &displaced{}) {
		// After a move during the save, files are missing.
		if err := r.checkPlace(s); err != nil {
			s.err = err
		}
	}
	if s.err == nil && r.Comm.Rank() == 0 {
		r.Observe(Event{Kind: Saved, Step: int(s.at.Step), Epoch: int(s.at.Epoch), Epochs: int(r.train.Epochs), Path: s.path,
			Took: time.Since(s.began), Stalled: s.stalled})
	}
	return s.err
}

// tolerate reports err and returns nil if the job continues after a failed save: earlier
// checkpoints are intact, and the next save is a new attempt. It returns err if a parameter is not
// finite or if the run directory was moved. In the latter case no later save could succeed.
func (r *run) tolerate(err error) error {
	if err == nil || r.Job.Checkpoint.OnError != jobs.SaveErrorContinue || errors.As(err, &diverged{}) || errors.As(err, &displaced{}) {
		return err
	}
	r.Observe(Event{Kind: Unsaved, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Err: err})
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
		Step: int(r.at.Step), Epoch: int(r.at.Epoch), Consumed: int(r.at.Consumed), Unevaluated: r.at.Unevaluated, Skipped: r.skipped, Finished: r.finished(),
		Seed: uint64(r.train.Seed), WorldSize: r.Comm.Size(), Spec: r.train.Fingerprint(), SpecSum: r.Job.TrainDigest(),
		DataSum: r.data.Digest(), Vocabulary: vocabulary, Optimizer: string(r.train.Optimizer.Kind), OptimInit: r.optimizer.StateBy(unread).Initialised,
		Metrics: map[string]checkpoint.Number{}, Replicas: r.replicas(), Layout: r.layout,
	}
	for k, v := range r.last {
		m.Metrics[k] = checkpoint.Number(v)
	}
	return m, nil
}

// sane returns an error if a parameter is not finite.
func (s *saving) sane() error {
	for _, p := range s.pieces[checkpoint.ModelFile] {
		for _, v := range p.Data {
			const exponent = 0xff << 23
			if math.Float32bits(v)&exponent == exponent {
				return diverged{fmt.Errorf("parameter %q holds numbers that are not finite after step %d", p.Tensor, s.at.Step), s.at.Step == 0}
			}
		}
	}
	return nil
}

// pieces returns this rank's part of the state: host memory itself, or copies of device memory.
func (r *run) pieces() map[string][]checkpoint.Part {
	read := r.copying()
	var model, optimizer []checkpoint.Part
	r.sharder.Pieces(r.values(read), func(i, at int, values []float32) {
		model = append(model, checkpoint.Part{Tensor: r.params[i].Name, At: at, Data: values})
	})
	_, arrays, single := r.divided(read)
	for _, a := range arrays {
		r.sharder.Pieces(a.values, func(i, at int, values []float32) {
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
