package trainer

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// asyncSteps tracks steps that the host has enqueued but whose results it has not read yet. It
// reads the result of a step while the device computes the next one, or earlier if it needs the
// result. It works for a single rank only: other ranks would have to be notified of a skipped step.
type asyncSteps struct {
	decision         device.StepDecision
	newReading       func() device.Reading
	steps            [2]stepResult // used alternately
	enqueued, synced int           // numbers of steps: enqueued, and with their result read
}

// stepResult holds the asynchronous copies of a step's results to the host.
type stepResult struct {
	at       position // before the step
	losses   []batchLoss
	batches  int // entries of losses in use
	decision device.Reading
}

// batchLoss is the contribution of a micro-batch to the step's loss.
type batchLoss struct {
	rows   device.Reading
	parts  int     // divisor of the sum of rows, see nn.Mean
	weight float64 // fraction of the step's samples
}

func newAsyncSteps(d device.AsyncUpdater, parts int) *asyncSteps {
	l := &asyncSteps{decision: d.NewStepDecision(parts), newReading: d.NewReading}
	for i := range l.steps {
		l.steps[i].decision = d.NewReading()
	}
	return l
}

// current returns the result of the step that is being enqueued.
func (l *asyncSteps) current() *stepResult { return &l.steps[l.enqueued%len(l.steps)] }

// begin begins a step.
func (l *asyncSteps) begin(at position) {
	o := l.current()
	o.at, o.batches = at, 0
}

// addBatch records the losses of a micro-batch. The next micro-batch overwrites them on the device,
// so they are copied now. The copy of the last one is enqueued after the update, so that nothing
// delays the update.
func (l *asyncSteps) addBatch(m nn.Model, weight float64, last bool) {
	o := l.current()
	if o.batches == len(o.losses) {
		o.losses = append(o.losses, batchLoss{rows: l.newReading()})
	}
	b := &o.losses[o.batches]
	o.batches++
	rows, parts := m.Losses()
	b.parts, b.weight = parts, weight
	l.decision.Losses(rows)
	if !last {
		b.rows.Begin(rows)
	}
}

// updateAsync enqueues the update, which the device skips if loss or gradients are not finite, and
// waits for the result of the previous step.
func (r *run) updateAsync() error {
	defer r.Trace.Add(trace.Optimizer, 0, r.Trace.Now())
	l := r.asyncSteps
	if err := r.sharder.FinishAsync(l.decision); err != nil {
		return fmt.Errorf("step %d: %w", r.pos.Step, err)
	}
	r.optimizer.SetRate(r.schedule(r.pos.Step))
	r.optimizer.StepAsync(r.sharder.Parts(), l.decision, r.train.Optimizer.ClipNorm)
	r.sharder.MarkUpdated()
	o := l.current()
	rows, _ := r.model.Losses()
	o.losses[o.batches-1].rows.Begin(rows)
	o.decision.Begin(l.decision.Result())
	l.enqueued++
	return r.syncSteps(1)
}

// syncSteps waits for the results of the enqueued steps, except for the newest ones. pending is the
// number of these.
func (r *run) syncSteps(pending int) (err error) {
	l := r.asyncSteps
	if l == nil || l.synced >= l.enqueued-pending {
		return nil
	}
	defer r.addStepToError(&err)
	defer device.Recover(&err)
	defer r.Trace.Add(trace.Device, 0, r.Trace.Now())
	for l.synced < l.enqueued-pending {
		o := &l.steps[l.synced%len(l.steps)]
		l.synced++
		decision, loss := o.decision.Floats(), 0.0
		for _, b := range o.losses[:o.batches] {
			loss += b.weight * nn.Mean(b.rows.Floats(), b.parts)
		}
		r.lastMetrics["loss"] = float64(float32(loss)) // ranks exchange it as float32
		if updated := decision[0] != 0; updated {
			r.skipped = 0
			r.optimizer.CountStep()
		} else if err := r.skipStep(o.at, loss, float64(decision[1])); err != nil {
			return err
		}
	}
	return nil
}
