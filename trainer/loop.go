package trainer

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// loop trains from the current position to the end, or until a stop.
func (r *run) loop(ctx context.Context) (stopped bool, err error) {
	for !r.isFinished() {
		r.monitor.begin()
		if !r.pos.Unevaluated { // otherwise a stop interrupted the evaluation of the previous epoch
			if stopped, err = r.epoch(ctx); err != nil {
				return false, err
			}
		}
		if !stopped || r.pos.Unevaluated {
			if stopped, err = r.endEpoch(ctx, stopped); err != nil {
				return false, err
			}
		}
		if stopped {
			return !r.isFinished(), nil
		}
	}
	return false, nil
}

// epoch trains the rest of the current epoch. It saves on a stop within the epoch, but leaves a
// stop in the last step to endEpoch.
func (r *run) epoch(ctx context.Context) (stopped bool, err error) {
	steps := r.steps(r.pos)
	r.loader.Start(batchesOf(steps))
	every := r.Job.Checkpoint.Every
	for i := range steps {
		r.epochStepsLeft = len(steps) - i
		if err := r.updateTrace(ctx); err != nil {
			return false, err
		}
		r.monitor.beginStep()
		err := r.step(ctx, &steps[i])
		r.monitor.endStep(int(r.pos.Step)+1, steps[i].samples)
		if err != nil {
			return false, err
		}
		r.advance(steps[i].samples)
		if err := r.pollAsyncSave(ctx); err != nil {
			return false, err
		}
		last := i == len(steps)-1
		reports, saves := r.due(r.train.LogEvery, last), !last && every.Unit == jobs.Steps && r.pos.Step%int64(every.N) == 0
		if last || r.outcome.stop || reports || saves {
			if err := r.syncSteps(0); err != nil {
				return false, err
			}
		}
		stop := r.outcome.stop
		if r.pos.Step%compareInterval == 0 && !saves && (!stop || last) { // a save makes its own comparison, see compareAll
			if err := r.compareWeights(ctx); err != nil {
				return false, err
			}
		}
		if reports {
			if err := r.reportInterval(ctx); err != nil {
				return false, err
			}
		}
		if stop && !last {
			return true, r.save(ctx)
		}
		if saves {
			if err := r.savePeriodic(ctx); err != nil {
				return false, err
			}
		}
		stopped = stop
	}
	r.pos.Epoch, r.pos.Consumed, r.pos.Unevaluated = r.pos.Epoch+1, 0, true
	return stopped, nil
}

// step runs an optimizer step. Every sample of the step has the same weight. The step ends when the
// device has all of its operations, and the outcome of the step before it is known; on the CPU, the
// outcome of this step.
func (r *run) step(ctx context.Context, b *stepBatches) (err error) {
	defer addStepToError(&err, r.pos.Step)
	defer device.Recover(&err)
	s := &r.stepper
	s.begin(ctx, r.pos)
	for i := range b.batches {
		batch, err := r.nextBatch(i)
		if err != nil {
			r.sharder.Stop()
			return err
		}
		s.forward(b, i, batch)
		if i == len(b.batches)-1 {
			s.setFlags(r.stopRequested(), r.saveInFlight())
		}
		s.backward(b, i, batch)
	}
	if err := s.reduce(ctx); err != nil {
		return fmt.Errorf("step %d: %w", r.pos.Step, err)
	}
	s.clipAndUpdate(r.pos.Step)
	s.end()
	return r.syncSteps(s.lag)
}

// nextBatch returns micro-batch i of a step in device memory.
func (r *run) nextBatch(i int) (nn.Batch, error) {
	defer r.Trace.Add(trace.Input, i, r.Trace.Now())
	read, n, err := r.loader.Next()
	if err != nil {
		return nn.Batch{}, err
	}
	return r.stepper.input.upload(r.device, read, n, r.batch), nil
}

// syncSteps waits for the outcomes of the enqueued steps, except for the given number of the newest.
func (r *run) syncSteps(remaining int) (err error) {
	defer addStepToError(&err, r.pos.Step)
	defer device.Recover(&err)
	for {
		o, ok := r.stepper.next(remaining)
		if !ok {
			return nil
		}
		r.outcome = o
		r.lastMetrics["loss"] = o.loss
		if o.isUpdated {
			r.skipped = 0
		} else if err := r.skipStep(o); err != nil {
			return err
		}
	}
}

// maxSkipped is the maximum number of consecutive skipped steps. More of them are unlikely to be
// caused by single samples.
const maxSkipped = 10

// skipStep records a skipped step, whose loss or gradient norm is not finite. It returns an error
// unless the job allows skipped steps.
func (r *run) skipStep(o outcome) error {
	what, value := "loss", o.loss
	if isFinite(o.loss) {
		what, value = "gradient", o.norm
	}
	err := divergedError{fmt.Errorf("the %s became %v at step %d of epoch %d", what, value, o.at.Step, o.at.Epoch), o.at.Step == 0}
	if r.skipped++; r.train.NonFinite != jobs.NonFiniteSkip || r.skipped > maxSkipped {
		return err
	}
	r.Observe(Event{Kind: Skipped, Step: int(o.at.Step), Epoch: int(o.at.Epoch), Epochs: r.train.Epochs, Err: err})
	return nil
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

// endEpoch evaluates and saves after the last step of an epoch. If a stop has been requested, or is
// requested during the evaluation, it saves immediately: the checkpoint may need all of the
// remaining time. The evaluation starts over when the run resumes.
func (r *run) endEpoch(ctx context.Context, stop bool) (stopped bool, err error) {
	improved := false
	if !stop {
		if stop, err = r.evaluate(ctx); err != nil {
			return false, err
		}
		improved = !stop && r.improved()
	}
	every := r.Job.Checkpoint.Every
	due := every.Unit == jobs.Epochs && r.pos.Epoch%int64(every.N) == 0 || every.Unit == jobs.Steps && r.pos.Step%int64(every.N) == 0
	switch {
	case stop || r.isFinished():
		err = r.save(ctx)
	case due || improved:
		err = r.savePeriodic(ctx)
	}
	return stop, err
}

// due reports whether a periodic action is due after this step. Reports are always due at the end
// of an epoch.
func (r *run) due(every jobs.Interval, last bool) bool {
	return last || every.Unit == jobs.Steps && r.pos.Step%int64(every.N) == 0
}

// advance counts a step with this number of samples over all ranks.
func (r *run) advance(samples int) {
	r.pos.Step++
	r.epochStepsLeft--
	r.Progress.step.Store(r.pos.Step)
	r.Progress.done.Add(1)
	r.pos.Consumed += int64(samples)
}

// stepsLeft returns the number of steps to the end of the run. The total cannot be computed from
// the current world size, because earlier steps may have run with a different one.
func (r *run) stepsLeft() int {
	return r.epochStepsLeft + (r.train.Epochs-int(r.pos.Epoch)-1)*r.stepsPerEpoch
}

// reportInterval emits the metrics of the steps since the last report.
func (r *run) reportInterval(ctx context.Context) error {
	e := Event{Kind: Trained, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs, Loss: r.lastMetrics["loss"],
		Steps: int(r.pos.Step) + r.stepsLeft(), LR: r.optimizer.Rate()}
	left := (int64(r.train.Epochs)-r.pos.Epoch)*int64(r.data.Len()) - r.pos.Consumed
	if err := r.monitor.report(ctx, &e, int64(r.data.Tokens()), left); err != nil {
		return err
	}
	r.Observe(e)
	return nil
}
