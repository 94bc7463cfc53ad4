package trainer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpointing"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// A loop trains: it runs the steps, and compares, reports, evaluates, and saves when this is due.
type loop struct {
	stepper   stepper
	evaluator *evaluator // nil without held-out data
	monitor   monitor
	saver     *checkpointing.Saver
	order     order
	loader    *data.Loader
	batch     int // maximum samples per micro-batch, at most a rank's share of the larger data set

	epochs              int
	logEvery, saveEvery jobs.Interval
	skipsNonFinite      bool // steps that are not finite are skipped
	stopRequested       func() bool
	observe             func(Event)
	progress            *Progress
	trace               *trace.Recorder

	pos            position
	outcome        outcome            // of the newest step whose outcome is known
	skipped        int                // number of consecutive skipped steps
	metrics        map[string]float64 // most recent metrics, for the manifest
	stepsPerEpoch  int                // steps per full epoch
	epochStepsLeft int                // remaining steps of the current epoch
}

// position is the progress of training.
type position struct {
	Step     int64 // completed optimizer steps
	Epoch    int64 // epoch of the next step
	Consumed int64 // samples of that epoch consumed by all ranks
	// Unevaluated reports that the previous epoch has ended but is not evaluated yet.
	Unevaluated bool
}

// run trains from the current position to the end, or until a stop.
func (l *loop) run(ctx context.Context) (stopped bool, err error) {
	defer func() { addStepToError(&err, l.pos.Step) }()
	defer device.Recover(&err)
	for !l.isFinished() && !stopped {
		l.monitor.begin()
		if !l.pos.Unevaluated { // otherwise a stop interrupted the evaluation of the previous epoch
			if stopped, err = l.epoch(ctx); err != nil {
				return false, err
			}
		}
		if !stopped || l.pos.Unevaluated {
			if stopped, err = l.endEpoch(ctx, stopped); err != nil {
				return false, err
			}
		}
	}
	return stopped && !l.isFinished(), nil
}

func (l *loop) isFinished() bool { return !l.hasSteps() && !l.pos.Unevaluated }

// hasSteps reports whether epochs remain to be trained, and not only an evaluation.
func (l *loop) hasSteps() bool { return l.pos.Epoch < int64(l.epochs) }

// epoch trains the rest of the current epoch. It saves on a stop within the epoch, but leaves a
// stop in the last step to endEpoch.
func (l *loop) epoch(ctx context.Context) (stopped bool, err error) {
	steps := l.order.steps(l.pos)
	l.loader.Start(batchesOf(steps))
	for i := range steps {
		last := i == len(steps)-1
		l.epochStepsLeft = len(steps) - i
		if err := l.updateTrace(ctx); err != nil {
			return false, err
		}
		if err := l.step(ctx, &steps[i]); err != nil {
			return false, err
		}
		l.advance(steps[i].samples)
		saves := !last && l.isDue(l.saveEvery)
		if stopped, err = l.afterStep(ctx, last, saves); err != nil {
			return false, err
		}
		switch {
		case stopped && !last:
			return true, l.save(ctx, l.saver.Save)
		case saves:
			if err := l.save(ctx, l.saver.SavePeriodic); err != nil {
				return false, err
			}
		}
	}
	l.pos.Epoch, l.pos.Consumed, l.pos.Unevaluated = l.pos.Epoch+1, 0, true
	return stopped, nil
}

// step runs an optimizer step. Every sample of the step has the same weight. The step ends when the
// device has all of its operations and the outcome of the previous step is known. On the CPU, and on
// a GPU with LaunchBlocking, it ends when its own outcome is known.
func (l *loop) step(ctx context.Context, b *stepBatches) (err error) {
	defer addStepToError(&err, l.pos.Step)
	defer device.Recover(&err)
	l.monitor.beginStep()
	defer l.monitor.endStep(int(l.pos.Step)+1, b.samples)
	s := &l.stepper
	if err := l.passes(ctx, b); err != nil {
		return err
	}
	if err := s.reduce(ctx); err != nil {
		if earlier := l.syncSteps(ctx, 0); earlier != nil { // on a GPU, the error may belong to the step before
			return earlier
		}
		return fmt.Errorf("step %d: %w", l.pos.Step, err)
	}
	s.clipAndUpdate(l.pos.Step)
	s.end()
	return l.syncSteps(ctx, s.lag)
}

// passes begins a step and runs its forward and backward passes.
func (l *loop) passes(ctx context.Context, b *stepBatches) error {
	s := &l.stepper
	s.begin(ctx, l.pos)
	for i := range b.batches {
		batch, err := l.nextBatch(i)
		if err != nil {
			_ = s.sharder.Stop(ctx) // the first error is the cause
			return err
		}
		s.forward(b, i, batch)
		if i == len(b.batches)-1 {
			s.setFlags(l.stopRequested(), l.saver.InFlight())
		}
		s.backward(b, i, batch)
	}
	return nil
}

// afterStep polls the save in the background, and compares the weights and reports if this is due.
// It reports whether a rank was asked to stop.
func (l *loop) afterStep(ctx context.Context, last, saves bool) (stopped bool, err error) {
	if err := l.saver.Poll(ctx, l.outcome.at.Step, l.outcome.saveInFlight); err != nil {
		return false, err
	}
	reports := last || l.isDue(l.logEvery)
	if l.outcome.stop || reports || saves {
		if err := l.syncSteps(ctx, 0); err != nil {
			return false, err
		}
	}
	stopped = l.outcome.stop
	if l.pos.Step%compareInterval == 0 && !saves && !stopped { // a save makes its own comparison
		if err := l.saver.State.CompareWeights(ctx, l.pos.Step); err != nil {
			return false, err
		}
	}
	if reports {
		err = l.report(ctx)
	}
	return stopped, err
}

// nextBatch returns micro-batch i of a step in device memory.
func (l *loop) nextBatch(i int) (nn.Batch, error) {
	defer l.trace.Add(trace.Input, i, l.trace.Now())
	read, n, err := l.loader.Next()
	if err != nil {
		return nn.Batch{}, err
	}
	return l.stepper.input.upload(l.stepper.device, read, n, l.batch), nil
}

// save saves the current state.
func (l *loop) save(ctx context.Context, save func(context.Context, int64) error) error {
	defer l.progress.enter(phaseSaving)()
	return save(ctx, l.pos.Step)
}

// compareInterval is the maximum number of steps between two comparisons of the weights. A save
// also compares them. A comparison reads 1 GB of weights in about 0.1 s, and a model of that size
// needs minutes for 100 steps.
const compareInterval = 100

// syncSteps waits for the outcomes of the enqueued steps, except for the given number of the newest.
func (l *loop) syncSteps(ctx context.Context, remaining int) (err error) {
	defer addStepToError(&err, l.pos.Step)
	defer device.Recover(&err)
	for {
		o, ok, err := l.stepper.next(ctx, remaining)
		if err != nil || !ok {
			return err
		}
		l.outcome = o
		l.metrics["loss"] = o.loss
		if o.isUpdated {
			l.skipped = 0
		} else if err := l.skipStep(o); err != nil {
			return err
		}
	}
}

// maxSkipped is the maximum number of consecutive skipped steps. More of them are unlikely to be
// caused by single samples.
const maxSkipped = 10

// skipStep records a skipped step, whose loss or gradient norm is not finite. It returns an error if
// the job does not allow skipped steps, or if more than maxSkipped steps in a row were skipped.
func (l *loop) skipStep(o outcome) error {
	what, value := "loss", o.loss
	if isFinite(o.loss) {
		what, value = "gradient", o.norm
	}
	err := checkpointing.NonFiniteError{Err: fmt.Errorf("the %s became %v at step %d of epoch %d", what, value, o.at.Step, o.at.Epoch), FirstStep: o.at.Step == 0}
	if l.skipped++; !l.skipsNonFinite || l.skipped > maxSkipped {
		return err
	}
	e := l.event(Skipped)
	e.Step, e.Epoch, e.Err = int(o.at.Step), int(o.at.Epoch), err
	l.observe(e)
	return nil
}

// endEpoch evaluates after the last step of an epoch, and saves if a save is due. If a stop has been
// requested, or is requested during the evaluation, it saves immediately: the checkpoint may need all
// of the remaining time. The evaluation starts over when the run resumes.
func (l *loop) endEpoch(ctx context.Context, stop bool) (stopped bool, err error) {
	improved := false
	if !stop {
		if stop, err = l.evaluate(ctx); err != nil {
			return false, err
		}
		improved = !stop && l.saver.Improved(l.metrics)
	}
	switch {
	case stop || l.isFinished():
		err = l.save(ctx, l.saver.Save)
	case improved, l.isDue(l.saveEvery), l.saveEvery.Unit == jobs.Epochs && l.pos.Epoch%int64(l.saveEvery.N) == 0:
		err = l.save(ctx, l.saver.SavePeriodic)
	}
	return stop, err
}

// evaluate evaluates the held-out data after an epoch. If a rank was asked to stop, the evaluation
// starts over when the run resumes.
func (l *loop) evaluate(ctx context.Context) (stopped bool, err error) {
	l.pos.Unevaluated = false
	if l.evaluator == nil {
		return false, nil
	}
	defer l.progress.enter(phaseEvaluating)()
	defer l.trace.Add(trace.Evaluate, 0, l.trace.Now())
	found, err := l.evaluator.run(ctx)
	var unreadable dataError
	switch {
	case errors.As(err, &unreadable):
		return false, unreadable.error
	case err != nil:
		return false, fmt.Errorf("evaluate after epoch %d: %w", l.pos.Epoch, err)
	case found.stopped:
		l.pos.Unevaluated = true
		return true, nil
	}
	l.metrics["eval_loss"] = found.loss
	if l.evaluator.data.Classes() {
		l.metrics["accuracy"] = found.accuracy
	}
	e := l.event(Evaluated)
	e.Loss, e.Accuracy = found.loss, found.accuracy
	l.observe(e)
	return false, nil
}

// isDue reports whether an interval in steps ends at the current step. It returns false for intervals
// in other units.
func (l *loop) isDue(every jobs.Interval) bool {
	return every.Unit == jobs.Steps && l.pos.Step%int64(every.N) == 0
}

// advance counts a step with this number of samples over all ranks.
func (l *loop) advance(samples int) {
	l.pos.Step++
	l.epochStepsLeft--
	l.progress.step.Store(l.pos.Step)
	l.progress.done.Add(1)
	l.pos.Consumed += int64(samples)
}

// stepsLeft returns the number of steps to the end of the run. The total cannot be computed from
// the current world size, because earlier steps may have run with a different one.
func (l *loop) stepsLeft() int {
	return l.epochStepsLeft + (l.epochs-int(l.pos.Epoch)-1)*l.stepsPerEpoch
}

// warnZeroRate warns about steps at the end of the run for which the schedule gives a learning
// rate of 0. A single such step is normal at the end of a cosine. With a peak rate of 0, all steps
// are idle on purpose.
func (l *loop) warnZeroRate(peak float64) {
	l.epochStepsLeft = l.order.count(l.pos)
	last := l.pos.Step + int64(l.stepsLeft())
	idle := 0
	for step := last - 1; step >= l.pos.Step && l.stepper.schedule(step) == 0; step-- {
		idle++
	}
	if idle > 1 && peak > 0 {
		l.observe(Event{Kind: Idle, Step: int(l.pos.Step), Steps: int(last), Idle: idle})
	}
}

// event returns an event at the current position.
func (l *loop) event(kind Kind) Event {
	return Event{Kind: kind, Step: int(l.pos.Step), Epoch: int(l.pos.Epoch), Epochs: l.epochs}
}

// report emits the metrics of the steps since the last report.
func (l *loop) report(ctx context.Context) error {
	e := l.event(Trained)
	e.Loss, e.Steps, e.LR = l.metrics["loss"], int(l.pos.Step)+l.stepsLeft(), l.stepper.optimizer.Rate()
	left := (int64(l.epochs)-l.pos.Epoch)*int64(l.order.data.Len()) - l.pos.Consumed
	if err := l.monitor.report(ctx, &e, int64(l.order.data.Tokens()), left); err != nil {
		return err
	}
	l.observe(e)
	return nil
}

// updateTrace begins or ends the trace before the next step, on all ranks. The trace includes work
// between steps: after the last traced step and before the next step.
func (l *loop) updateTrace(ctx context.Context) error {
	begin, end := l.trace.Due(int(l.pos.Step) + 1)
	if end {
		if err := l.syncSteps(ctx, 0); err != nil { // the times on the GPU are known with the outcome
			return err
		}
		l.endTrace()
	}
	if !begin {
		return nil
	}
	var id [8]byte // rank 0's, to distinguish files of different attempts
	binary.LittleEndian.PutUint64(id[:], uint64(time.Now().UnixNano()))
	err := l.monitor.comm.Do(ctx, collective.Broadcast(id[:], 0))
	if err == nil {
		err = l.trace.Begin(binary.LittleEndian.Uint64(id[:]), func() error { return l.monitor.comm.Do(ctx, collective.Barrier()) })
	}
	if err != nil {
		return fmt.Errorf("compare clocks before step %d: %w", l.pos.Step+1, err)
	}
	return nil
}

// endTrace ends the trace, if one is active, and emits the event to write it. A save in the
// background is included up to now.
func (l *loop) endTrace() {
	if !l.trace.Recording() {
		return
	}
	l.saver.TraceInFlight()
	l.trace.End()
	l.observe(l.event(Traced))
}

// spansPerStep returns the maximum number of spans of a step on one track: a fixed number, and for
// each micro-batch an operation or a wait per bucket, for values in both passes and for gradients.
func spansPerStep(batches, buckets int) int { return 16 + max(1, batches)*(4+3*buckets) }
