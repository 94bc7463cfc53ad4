package trainer

import (
	"context"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// The scalars that are reduced with the gradients of a step.
const (
	extraLoss         = iota // loss of the global batch
	extraStop                // above 0: a rank was asked to stop
	extraSaveInFlight        // above 0: a rank has not written its part of a checkpoint yet
	numExtra
)

// maxSkipped is the maximum number of consecutive skipped steps. More of them are unlikely to be
// caused by single samples.
const maxSkipped = 10

// graphCapturer is a device that can defer operations between Begin and End and run them together,
// for example as a CUDA graph. It runs them earlier if the host reads a result.
type graphCapturer interface {
	Begin()
	End()
}

// runCaptured runs a step between Begin and End if the device is a graphCapturer.
func (r *run) runCaptured(ctx context.Context, s stepBatches) (stop bool, err error) {
	defer r.addStepToError(&err)
	defer device.Recover(&err)
	g, ok := r.device.(graphCapturer)
	if !ok || r.LaunchBlocking {
		return r.step(ctx, s)
	}
	g.Begin()
	if stop, err = r.step(ctx, s); err == nil {
		g.End()
	}
	return stop, err
}

// step runs an optimizer step: forward and backward passes for the step's micro-batches, which the
// loader returns in this order, gradient accumulation, reduction, and update. Every sample of the
// step has the same weight. step reports whether any rank was asked to stop. It sets
// r.lastMetrics["loss"] to the mean loss over all samples and ranks, immediately or, with
// asynchronous steps, later.
func (r *run) step(ctx context.Context, s stepBatches) (stop bool, err error) {
	world, loss := r.Comm.Size(), 0.0
	pass := nn.Pass{Train: true, Seed: stepSeed(r.train.Seed, uint64(r.pos.Step)), First: r.Comm.Rank(), Stride: world, Owner: r.sharder.Owner(), DeferLoss: r.asyncSteps != nil}
	if r.asyncSteps != nil {
		r.asyncSteps.begin(r.pos)
	}
	r.sharder.Start(ctx)
	for i := range s.batches {
		at := r.Trace.Now()
		read, n, err := r.loader.Next()
		if err != nil {
			r.sharder.Stop()
			return false, err
		}
		batch := r.deviceBatch.upload(r.device, read, n, r.batch)
		at = r.Trace.Add(trace.Input, i, at)
		weight, counts := float64(n)/float64(s.samples), i < s.count
		pass.Weight = float32(weight)
		if found := r.model.Forward(batch, pass).Loss; counts {
			loss += weight * found
		}
		at = r.Trace.Add(trace.Forward, i, at)
		last, each := i == len(s.batches)-1, r.sharder.ReducesEachBatch()
		if last && r.asyncSteps == nil {
			r.setExtra(loss)
		}
		var ready func(int) // nil before the last micro-batch, unless each micro-batch is reduced (no_sync in PyTorch)
		switch {
		case !counts:
			ready = r.readyZero
		case last || each:
			ready = r.ready
		}
		r.model.Backward(batch, pass, ready)
		r.Trace.Add(trace.Backward, i, at)
		if r.asyncSteps != nil {
			r.asyncSteps.addBatch(r.model, weight, last)
		}
		pass.Accumulate = !each
		pass.First += n * world
	}
	if r.asyncSteps != nil {
		return r.stopRequested(), r.updateAsync()
	}
	at := r.Trace.Now()
	if err := r.sharder.Finish(ctx); err != nil {
		return false, fmt.Errorf("step %d: %w", r.pos.Step, err)
	}
	r.Trace.Add(trace.Finish, 0, at)
	extra := r.sharder.Extra()
	r.lastMetrics["loss"] = float64(extra[extraLoss])
	return extra[extraStop] > 0, r.update(r.lastMetrics["loss"])
}

// addStepToError adds the step to the failure of a device.
func (r *run) addStepToError(err *error) {
	if f, ok := (*err).(*device.Failure); ok {
		*err = fmt.Errorf("step %d: %w", r.pos.Step, f)
	}
}

// setExtra sets the scalars that are reduced with the gradients.
func (r *run) setExtra(loss float64) {
	extra := r.sharder.Extra()
	extra[extraLoss], extra[extraStop] = float32(loss), 0
	if r.stopRequested() {
		extra[extraStop] = 1
	}
	if extra[extraSaveInFlight] = 0; r.saveInFlight() {
		extra[extraSaveInFlight] = 1
	}
}

// update updates the parameters, unless loss or gradients are not finite. All ranks have the same
// loss and norm and make the same decision.
func (r *run) update(loss float64) error {
	defer r.Trace.Add(trace.Optimizer, 0, r.Trace.Now())
	norm := r.sharder.Norm()
	if !isFinite(loss) || !isFinite(norm) {
		return r.skipStep(r.pos, loss, norm)
	}
	r.skipped = 0
	scale := float32(1)
	if maxNorm := r.train.Optimizer.ClipNorm; maxNorm > 0 {
		scale = optim.ClipScale(norm, maxNorm)
	}
	r.optimizer.SetRate(r.schedule(r.pos.Step))
	r.optimizer.Step(r.sharder.Parts(), scale)
	r.sharder.MarkUpdated()
	return nil
}

// skipStep records a skipped step, whose loss or gradient norm is not finite. It returns an error
// unless the job allows skipped steps.
func (r *run) skipStep(at position, loss, norm float64) error {
	what, value := "loss", loss
	if isFinite(loss) {
		what, value = "gradient", norm
	}
	err := divergedError{fmt.Errorf("the %s became %v at step %d of epoch %d", what, value, at.Step, at.Epoch), at.Step == 0}
	if r.skipped++; r.train.NonFinite != jobs.NonFiniteSkip || r.skipped > maxSkipped {
		return err
	}
	r.Observe(Event{Kind: Skipped, Step: int(at.Step), Epoch: int(at.Epoch), Epochs: r.train.Epochs, Err: err})
	return nil
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// stepSeed returns the seed for a step's dropout: the output of SplitMix64 with the index step,
// seeded with the run's seed (Steele et al. 2014).
func stepSeed(seed, step uint64) uint64 {
	z := seed + (step+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// divergedError is the error for a loss, gradient, or parameter that is not finite.
type divergedError struct {
	error
	firstStep bool // in the first step
}

// Hint returns the fix.
func (d divergedError) Hint() string {
	if d.firstStep {
		return "check the data for huge or non-finite values, and the scale of the inputs; the learning rate is not the cause, because there was no update yet"
	}
	return "reduce train.optimizer.lr, in a new run directory or from the start; or set train.nonfinite = \"skip\" to skip single steps; the failed step was not saved"
}
