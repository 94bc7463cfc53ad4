package eventlog

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/metrics/prometheus"
)

// An Exporter writes the current metrics of a run to a directory that a Prometheus collector reads.
// It writes no file before the first event with metrics, and removes the file at the end.
// Otherwise, Prometheus would collect the metrics of finished runs indefinitely.
type Exporter struct {
	path    string // empty if disabled
	labels  [][2]string
	train   *trainer.Event
	eval    *trainer.Event
	saved   *trainer.Event
	savedAt time.Time
}

// NewExporter returns an Exporter that writes to a file in dir. The file name contains the
// run ID, so that concurrent runs do not share a file. An empty dir disables the Exporter.
func NewExporter(dir, name, run, job, host string) Exporter {
	if dir == "" {
		return Exporter{}
	}
	return Exporter{path: prometheus.Path(dir, name, run),
		labels: [][2]string{{"run", name}, {"run_id", run}, {"job", job}, {"host", host}}}
}

// Update updates the file for an event.
func (x *Exporter) Update(e trainer.Event) error {
	if x.path == "" {
		return nil
	}
	switch e.Kind {
	case trainer.Trained:
		x.train = &e
	case trainer.Evaluated:
		x.eval = &e
	case trainer.Saved:
		x.saved, x.savedAt = &e, time.Now()
	default:
		return nil
	}
	return prometheus.Replace(x.path, prometheus.Format(x.labels, x.metrics(time.Now())))
}

// Close removes the file.
func (x *Exporter) Close() error {
	if x.path == "" {
		return nil
	}
	if err := os.Remove(x.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (x *Exporter) metrics(now time.Time) []prometheus.Metric {
	all := []prometheus.Metric{{Name: "ddpbatch_report_timestamp_seconds", Help: "Time of the last update, as Unix time.", Value: unix(now)}}
	gauge := func(name, help string, v float64) {
		all = append(all, prometheus.Metric{Name: "ddpbatch_" + name, Help: help, Value: v})
	}
	if e := x.train; e != nil {
		all = append(all, prometheus.Metric{Name: "ddpbatch_train_steps_total", Help: "Completed optimizer steps.", Count: true, Value: float64(e.Step)})
		gauge("train_planned_steps", "Total optimizer steps of the run.", float64(e.Steps))
		gauge("train_epoch", "Current epoch, from 0.", float64(e.Epoch))
		gauge("train_loss", "Loss of the last step of the interval, mean over all ranks.", e.Loss)
		gauge("train_learning_rate", "Learning rate of the last step.", e.LR)
		gauge("train_samples_per_second", "Samples per second, all ranks.", e.SamplesPerSecond)
		if e.TokensPerSecond > 0 {
			gauge("train_tokens_per_second", "Tokens per second, all ranks.", e.TokensPerSecond)
		}
		gauge("train_step_duration_seconds", "Step time of rank 0, mean of the interval.", e.StepTime.Seconds())
		gauge("train_remaining_seconds", "Estimated time to the end of the run.", e.Remaining.Seconds())
		if c := e.Communication; c != nil {
			gauge("train_communication_duration_seconds", "Communication time per step on rank 0, including the wait for other ranks.", c.Busy.Seconds())
			gauge("train_communication_hidden_ratio", "Fraction of the communication time that overlaps with computation.", c.Hidden)
			gauge("train_slowest_rank", "Rank with the longest computation time.", float64(c.Slowest))
			gauge("train_slowest_rank_ratio", "Computation time of the slowest rank, relative to the median rank.", c.Ratio)
		}
	}
	if e := x.eval; e != nil {
		gauge("eval_loss", "Loss on the held-out data.", e.Loss)
		if !math.IsNaN(e.Accuracy) {
			gauge("eval_accuracy_ratio", "Accuracy on the held-out data.", e.Accuracy)
		}
	}
	if e := x.saved; e != nil {
		gauge("checkpoint_step", "Step of the newest checkpoint.", float64(e.Step))
		gauge("checkpoint_timestamp_seconds", "Time of the newest checkpoint, as Unix time.", unix(x.savedAt))
		gauge("checkpoint_duration_seconds", "Time to write the newest checkpoint.", e.Took.Seconds())
	}
	return all
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
