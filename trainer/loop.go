package trainer

import (
	"context"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// loop trains from the present position to the end, or until a stop.
func (r *run) loop(ctx context.Context) (stopped bool, err error) {
	for !r.finished() {
		r.interval = interval{began: time.Now()}
		stopped, err := r.epoch(ctx)
		if err != nil || stopped {
			return stopped, err
		}
	}
	return false, nil
}

// epoch trains the rest of the present epoch, evaluates and saves.
func (r *run) epoch(ctx context.Context) (stopped bool, err error) {
	order := r.batches(r.at)
	r.loader.Start(order.batches)
	every := r.Job.Checkpoint.Every
	steps := order.steps()
	for i, batches := range steps {
		loss, stop, err := r.step(ctx, batches)
		if err != nil {
			return false, err
		}
		r.advance(loss, batches)
		if r.at.Step%verifyEvery == 0 {
			if err := r.verify(ctx); err != nil {
				return false, err
			}
		}
		last := i == len(steps)-1
		if r.at.Step%int64(r.train.LogEvery.Steps(r.perEpoch)) == 0 || last {
			if err := r.report(ctx, loss); err != nil {
				return false, err
			}
		}
		if stop && !last {
			return true, r.save()
		}
		if !last && every.Unit == jobs.Steps && r.at.Step%int64(every.N) == 0 {
			if err := r.save(); err != nil {
				return false, err
			}
		}
		stopped = stop
	}
	r.at.Epoch, r.at.Consumed = r.at.Epoch+1, 0
	if err := r.evaluate(ctx); err != nil {
		return false, err
	}
	due := every.Unit == jobs.Epochs && r.at.Epoch%int64(every.N) == 0 || every.Unit == jobs.Steps && r.at.Step%int64(every.N) == 0
	if due || stopped || r.finished() {
		if err := r.save(); err != nil {
			return false, err
		}
	}
	return stopped && !r.finished(), nil
}

// advance counts a step.
func (r *run) advance(loss float64, batches [][]int) {
	samples := 0
	for _, b := range batches {
		samples += len(b) * r.Comm.Size()
	}
	r.at.Step++
	r.Step.Store(r.at.Step)
	r.at.Consumed += int64(samples)
	r.last["loss"] = loss
	r.interval.samples += samples
	r.interval.steps++
}

// report tells of the steps since the last report.
func (r *run) report(ctx context.Context, loss float64) error {
	elapsed := time.Since(r.interval.began)
	communication, err := r.communication(ctx, elapsed)
	if err != nil {
		return err
	}
	e := Event{Kind: Trained, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Loss: loss,
		Steps: r.perEpoch * int(r.train.Epochs), LR: r.optimizer.Rate(), Communication: communication}
	if elapsed > 0 {
		e.SamplesPerSecond = float64(r.interval.samples) / elapsed.Seconds()
		e.TokensPerSecond = e.SamplesPerSecond * float64(r.data.Tokens())
		left := (int64(r.train.Epochs)-r.at.Epoch)*int64(r.data.Len()) - r.at.Consumed
		e.Remaining = time.Duration(float64(max(left, 0)) / e.SamplesPerSecond * float64(time.Second))
	}
	r.interval = interval{began: time.Now()}
	r.Observe(e)
	return nil
}
