// Package eventlog writes the events of a training run to files: to metrics.jsonl and
// TensorBoard ([Recorder]), and to a directory that a Prometheus collector reads ([Exporter]).
//
// It defines which event becomes which metric. It does not print, does not write the logs of
// ranks, and is not safe for concurrent use.
package eventlog

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/metrics/tensorboard"
)

// A Recorder writes the metrics of a run to metrics.jsonl and to a TensorBoard file.
type Recorder struct {
	Root           *os.Root // directory of both; nil to open them by their paths
	Path           string   // of metrics.jsonl
	TensorBoardDir string
	Host           string // for the name of the TensorBoard file

	metrics *metrics.Log
	board   *tensorboard.File
}

// Write writes an event. [trainer.Started] opens the files and removes the records of later steps than
// its own. Write ignores events before it.
func (r *Recorder) Write(e trainer.Event) error {
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
	return r.board.Write(m.Time, m.Step, tensorboard.FromRecord(m)...)
}

func (r *Recorder) open(step int) (err error) {
	if r.Root != nil {
		r.metrics, err = metrics.OpenIn(r.Root, filepath.Base(r.Path), step)
	} else {
		r.metrics, err = metrics.Open(r.Path, step)
	}
	if err != nil {
		return err
	}
	if r.Root != nil {
		r.board, err = tensorboard.CreateIn(r.Root, filepath.Base(r.TensorBoardDir), r.Host, step, time.Now())
	} else {
		r.board, err = tensorboard.Create(r.TensorBoardDir, r.Host, step, time.Now())
	}
	return err
}

// Close closes the files.
func (r *Recorder) Close() error {
	var errs []error
	if r.metrics != nil {
		errs = append(errs, r.metrics.Close())
	}
	if r.board != nil {
		errs = append(errs, r.board.Close())
	}
	return errors.Join(errs...)
}

// recordOf returns an event as a line of metrics.jsonl. It returns false for events without
// metrics.
func recordOf(e trainer.Event) (m metrics.Record, ok bool) {
	m = metrics.Record{Kind: string(e.Kind), Step: e.Step, Epoch: e.Epoch, Steps: e.Steps, Epochs: e.Epochs, Time: time.Now().UTC()}
	switch e.Kind {
	case trainer.Trained:
		m.Loss, m.LR, m.SamplesPerSecond = metrics.NewNumber(e.Loss), metrics.NewNumber(e.LR), metrics.NewNumber(e.SamplesPerSecond)
		if e.TokensPerSecond > 0 {
			m.TokensPerSecond = metrics.NewNumber(e.TokensPerSecond)
		}
		m.StepMillis, m.LeftSeconds = metrics.NewNumber(e.StepTime.Seconds()*1e3), metrics.NewNumber(e.Remaining.Seconds())
		if c := e.Communication; c != nil {
			m.CommMillis, m.CommHidden = metrics.NewNumber(c.Busy.Seconds()*1e3), metrics.NewNumber(c.Hidden)
			m.SlowestRank, m.SlowestRatio, m.Straggler = &c.Slowest, metrics.NewNumber(c.Ratio), c.IsStraggler
			for _, t := range c.Computing {
				// Limit the digits to microseconds: a run can have thousands of ranks.
				m.ComputeMillis = append(m.ComputeMillis, metrics.Number(float64(t.Round(time.Microsecond).Microseconds())/1e3))
			}
		}
	case trainer.Evaluated:
		m.Loss = metrics.NewNumber(e.Loss)
		if !math.IsNaN(e.Accuracy) {
			m.Accuracy = metrics.NewNumber(e.Accuracy)
		}
	case trainer.Skipped:
	default:
		return m, false
	}
	return m, true
}
