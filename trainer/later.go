package trainer

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// later tracks steps that the host has enqueued but whose results it has not read yet. It reads the
// result of a step while the device computes the next one, or earlier if it needs the result. It
// works for a single rank only: other ranks would have to be notified of a skipped step.
type later struct {
	verdict      device.Verdict
	newReading   func() device.Reading
	steps        [2]outcome // used alternately
	asked, known int
}

// outcome is the result of a step, in transfer to the host.
type outcome struct {
	at      position // before the step
	losses  []batchLoss
	batches int // entries of losses in use
	told    device.Reading
}

// batchLoss is the contribution of a micro-batch to the step's loss.
type batchLoss struct {
	rows   device.Reading
	parts  int
	weight float64
}

func newLater(d device.Late, parts int) *later {
	l := &later{verdict: d.NewVerdict(parts), newReading: d.NewReading}
	for i := range l.steps {
		l.steps[i].told = d.NewReading()
	}
	return l
}

// next returns the outcome of the step that is being enqueued.
func (l *later) next() *outcome { return &l.steps[l.asked%len(l.steps)] }

// begin begins a step.
func (l *later) begin(at position) {
	o := l.next()
	o.at, o.batches = at, 0
}

// batch records the losses of a micro-batch. The next micro-batch overwrites them on the device, so
// they are copied now. The copy of the last one is enqueued after the update, so that nothing
// delays the update.
func (l *later) batch(m nn.Model, weight float64, last bool) {
	o := l.next()
	if o.batches == len(o.losses) {
		o.losses = append(o.losses, batchLoss{rows: l.newReading()})
	}
	b := &o.losses[o.batches]
	o.batches++
	rows, parts := m.Losses()
	b.parts, b.weight = parts, weight
	l.verdict.Losses(rows)
	if !last {
		b.rows.Begin(rows)
	}
}

// updateLater enqueues the update, which the device skips if loss or gradients are not finite, and
// waits for the result of the previous step.
func (r *run) updateLater() error {
	defer r.Trace.Add(trace.Optimizer, 0, r.Trace.Now())
	l := r.later
	if err := r.sharder.FinishLater(l.verdict); err != nil {
		return fmt.Errorf("step %d: %w", r.at.Step, err)
	}
	r.optimizer.SetRate(r.schedule(r.at.Step))
	r.optimizer.StepLater(r.sharder.Parts(), l.verdict, float64(r.train.Optimizer.ClipNorm))
	r.sharder.Updated()
	o := l.next()
	rows, _ := r.model.Losses()
	o.losses[o.batches-1].rows.Begin(rows)
	o.told.Begin(l.verdict.Told())
	l.asked++
	return r.learn(1)
}

// learn waits for the results of all steps except the last unknown ones.
func (r *run) learn(unknown int) (err error) {
	l := r.later
	if l == nil || l.known >= l.asked-unknown {
		return nil
	}
	defer r.inStep(&err)
	defer device.Recover(&err)
	defer r.Trace.Add(trace.Device, 0, r.Trace.Now())
	for l.known < l.asked-unknown {
		o := &l.steps[l.known%len(l.steps)]
		l.known++
		told, loss := o.told.Floats(), 0.0
		for _, b := range o.losses[:o.batches] {
			loss += b.weight * nn.Mean(b.rows.Floats(), b.parts)
		}
		r.last["loss"] = float64(float32(loss)) // ranks exchange it as float32
		if made := told[0] != 0; made {
			r.skipped = 0
			r.optimizer.Taken()
		} else if err := r.leaveOut(o.at, loss, float64(told[1])); err != nil {
			return err
		}
	}
	return nil
}
