package checkpointing

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// Origin is the checkpoint that training resumes from, on rank 0. Its tensors are read while they
// are sent to the other ranks. Without a checkpoint, training begins with new weights.
type Origin struct {
	*checkpoint.Snapshot        // nil without a checkpoint
	mismatchHint         string // as in Options
	model, optimizer     *checkpoint.Tensors
}

// Close closes the checkpoint, if there is one.
func (o Origin) Close() {
	if o.Snapshot != nil {
		o.Snapshot.Close()
	}
}

// Open opens the newest checkpoint that verifies. It returns why it skipped newer ones. Check
// returns an error if the checkpoint must not be used, for example because a different run saved it.
// Without a checkpoint, the Origin is empty. Only rank 0 calls Open.
func (s *Saver) Open(ctx context.Context, check func(*checkpoint.Manifest) error) (o Origin, skipped []error, err error) {
	o.mismatchHint = s.MismatchHint
	o.Snapshot, skipped, err = checkpoint.Load(ctx, s.Dir)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return Origin{}, skipped, nil
	}
	if ctx.Err() != nil {
		o.Close()
		return Origin{}, skipped, context.Cause(ctx)
	}
	if err != nil {
		return Origin{}, skipped, unusableError{err, o.mismatchHint}
	}
	if err = o.CheckOwn(); err == nil {
		err = check(&o.Manifest)
	}
	if err == nil {
		err = o.openTensors(s.State)
	}
	if err != nil {
		o.Close()
		return Origin{}, skipped, o.wrapUnusable(err)
	}
	s.verified[o.Manifest.Step] = true
	return o, skipped, nil
}

// openTensors finds the tensors of a checkpoint. They must be exactly the tensors of the model and
// the optimizer.
func (o *Origin) openTensors(s *State) (err error) {
	kind := o.Manifest.Optimizer
	if kind == "" {
		kind = optim.KindSGD // the only kind before manifests recorded it
	}
	if want := s.Optimizer.Kind(); kind != want {
		return fmt.Errorf("restore optimizer: the state is of kind %q, want %q", kind, want)
	}
	shapes := s.shapes()
	if o.model, err = o.Tensors(checkpoint.ModelFile, shapes[checkpoint.ModelFile]); err == nil {
		o.optimizer, err = o.Tensors(checkpoint.OptimizerFile, shapes[checkpoint.OptimizerFile])
	}
	return err
}

func (o Origin) wrapUnusable(err error) error {
	return unusableError{fmt.Errorf("checkpoint %q: %w", o.Path, err), o.mismatchHint}
}

// unusableError is the error for a checkpoint that exists but must not be used.
type unusableError struct {
	error
	hint string // if the cause does not have one
}

func (u unusableError) Unwrap() error { return u.error }

// ExitCode returns the exit code for a run without a usable checkpoint.
func (unusableError) ExitCode() int { return exitcode.NoCheckpoint }

// Hint returns the fix.
func (u unusableError) Hint() string { return cmp.Or(hints.Of(u.error), u.hint) }
