package trainer

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// later is what the host learns of steps after it has asked for them: of each while the
// next is computed, unless it has to know before. It is for a rank alone: others would
// have to be told of a step that was left out.
type later struct {
	verdict      device.Verdict
	newReading   func() device.Reading
	steps        [2]outcome // in turns
	asked, known int
}

// outcome is how a step went, on its way to the host.
type outcome struct {
	at      position // before it
	losses  []batchLoss
	batches int // of losses, in this step
	told    device.Reading
}

// batchLoss is what a batch adds to the step's loss.
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

// next is the place for the step that is being asked for.
func (l *later) next() *outcome { return &l.steps[l.asked%len(l.steps)] }

// begin begins a step.
func (l *later) begin(at position) {
	o := l.next()
	o.at, o.batches = at, 0
}

// batch takes the losses of a batch, whose rows the next one replaces. The last one's are
// copied after all that is asked for, so that nothing comes between.
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

// updateLater asks for the update, if the device finds that loss and gradients are finite,
// and learns of the step before.
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

// learn waits for the outcomes of all steps but so many.
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
		r.last["loss"] = float64(float32(loss)) // as it travels between ranks
		if made := told[0] != 0; made {
			r.skipped = 0
			r.optimizer.Taken()
		} else if err := r.leaveOut(o.at, loss, float64(told[1])); err != nil {
			return err
		}
	}
	return nil
}
