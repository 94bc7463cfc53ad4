package main

import (
	"errors"
	"math"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/metrics/tensorboard"
)

// recorder keeps the figures of a run: metrics.jsonl, and the same for TensorBoard.
type recorder struct {
	dir     rundir.Dir
	host    string
	metrics *metrics.Log
	board   *tensorboard.File
}

// keep writes what an event tells. The first one says where the run goes on.
func (r *recorder) keep(e trainer.Event) error {
	if e.Kind == trainer.Started {
		return r.open(e.Step)
	}
	m, ok := recordOf(e)
	if !ok || r.metrics == nil {
		return nil
	}
	if err := r.metrics.Write(m); err != nil {
		return err
	}
	if r.board == nil {
		return nil
	}
	return r.board.Write(m.Time, m.Step, scalarsOf(m)...)
}

func (r *recorder) open(step int) (err error) {
	if r.metrics, err = metrics.Open(r.dir.Metrics(), step); err != nil {
		return err
	}
	r.board, err = tensorboard.Create(r.dir.TensorBoard(), r.host, step, time.Now())
	return err
}

func (r *recorder) close() error {
	var errs []error
	if r.metrics != nil {
		errs = append(errs, r.metrics.Close())
	}
	if r.board != nil {
		errs = append(errs, r.board.Close())
	}
	return errors.Join(errs...)
}

// recordOf is an event as a line of metrics.jsonl, if it is one.
func recordOf(e trainer.Event) (m metrics.Record, ok bool) {
	m = metrics.Record{Kind: string(e.Kind), Step: e.Step, Epoch: e.Epoch, Steps: e.Steps, Epochs: e.Epochs, Time: time.Now().UTC()}
	switch e.Kind {
	case trainer.Trained:
		m.Loss, m.LR, m.SamplesPerSecond = metrics.Of(e.Loss), metrics.Of(e.LR), metrics.Of(e.SamplesPerSecond)
		if e.TokensPerSecond > 0 {
			m.TokensPerSecond = metrics.Of(e.TokensPerSecond)
		}
		m.StepMillis, m.LeftSeconds = metrics.Of(e.StepTime.Seconds()*1e3), metrics.Of(e.Remaining.Seconds())
		if c := e.Communication; c != nil {
			m.CommMillis, m.CommHidden = metrics.Of(c.Busy.Seconds()*1e3), metrics.Of(c.Hidden)
			m.SlowestRank, m.SlowestRatio, m.Straggler = &c.Slowest, metrics.Of(c.Ratio), c.Lasting
			for _, t := range c.Computing {
				// There may be thousands of ranks: no more digits than they mean.
				m.ComputeMillis = append(m.ComputeMillis, metrics.Number(float64(t.Round(time.Microsecond).Microseconds())/1e3))
			}
		}
	case trainer.Evaluated:
		m.Loss = metrics.Of(e.Loss)
		if !math.IsNaN(e.Accuracy) {
			m.Accuracy = metrics.Of(e.Accuracy)
		}
	case trainer.Skipped:
	default:
		return m, false
	}
	return m, true
}

// scalarsOf are the numbers of a record by TensorBoard's tags, grouped by its kind.
func scalarsOf(m metrics.Record) []tensorboard.Scalar {
	out := []tensorboard.Scalar{{Tag: m.Kind + "/epoch", Value: float64(m.Epoch)}}
	for _, f := range []struct {
		name  string
		value *metrics.Number
	}{
		{"loss", m.Loss}, {"accuracy", m.Accuracy}, {"lr", m.LR}, {"samples_per_s", m.SamplesPerSecond}, {"tokens_per_s", m.TokensPerSecond},
		{"step_ms", m.StepMillis}, {"comm_ms", m.CommMillis}, {"comm_hidden", m.CommHidden}, {"slowest_ratio", m.SlowestRatio},
	} {
		if f.value != nil {
			out = append(out, tensorboard.Scalar{Tag: m.Kind + "/" + f.name, Value: float64(*f.value)})
		}
	}
	return out
}
