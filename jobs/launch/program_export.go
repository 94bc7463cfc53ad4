package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/metrics/prometheus"
	"github.com/ddpbatch/ddpbatch/trainer/metrics/tensorboard"
)

// A programExporter writes the metrics of a user's program for TensorBoard and Prometheus, with
// the names of the built-in trainer. After an error it stops writing to the destination that failed.
type programExporter struct {
	dir    rundir.Dir
	say    func(string)
	host   string
	prom   string // path of the file for Prometheus; empty if disabled
	labels [][2]string

	board       *tensorboard.File
	boardFailed bool
	train, eval *metrics.Record // newest
}

func newProgramExporter(o Options, runID string) *programExporter {
	x := &programExporter{dir: o.Dir, say: o.Say}
	x.host, _ = os.Hostname()
	if dir := string(o.Job.Log.Prometheus); dir != "" {
		job := ""
		if o.Allocation != nil {
			job = o.Allocation.ID()
		}
		name := string(o.Job.Name)
		x.prom = prometheus.Path(dir, name, runID)
		x.labels = [][2]string{{"run", name}, {"run_id", runID}, {"job", job}, {"host", x.host}}
	}
	return x
}

func (x *programExporter) write(m metrics.Record) {
	x.writeBoard(m)
	if x.prom == "" {
		return
	}
	if m.Kind == "eval" {
		x.eval = &m
	} else {
		x.train = &m
	}
	if err := prometheus.Replace(x.prom, prometheus.Format(x.labels, x.metrics(time.Now()))); err != nil {
		x.say(fmt.Sprintf("warning: %v; disabling the export of metrics", err))
		x.closeProm() // a stale file would be collected indefinitely
	}
}

func (x *programExporter) writeBoard(m metrics.Record) {
	if x.boardFailed {
		return
	}
	var err error
	if x.board == nil {
		// A resumed program repeats the steps after its checkpoint.
		x.board, err = createBoard(x.dir, x.host, max(0, m.Step-1), m.Time)
	}
	if err == nil {
		err = x.board.Write(m.Time, m.Step, tensorboard.FromRecord(m)...)
	}
	if err != nil {
		x.boardFailed = true
		x.say(fmt.Sprintf("warning: %v; the run continues without TensorBoard files", err))
	}
}

// createBoard creates an event file in the held directory, even if another directory has taken its
// path.
func createBoard(d rundir.Dir, host string, step int, now time.Time) (*tensorboard.File, error) {
	root, done, err := d.OpenRoot()
	if err != nil {
		return nil, fmt.Errorf("create event file: %w", err)
	}
	defer done()
	return tensorboard.CreateIn(root, filepath.Base(d.TensorBoard()), host, step, now)
}

// metrics returns the current values. Names and meanings are the same as in the built-in trainer.
func (x *programExporter) metrics(now time.Time) []prometheus.Metric {
	all := []prometheus.Metric{{Name: "ddpbatch_report_timestamp_seconds", Help: "Time of the last update, as Unix time.", Value: float64(now.UnixMilli()) / 1e3}}
	gauge := func(name, help string, v *metrics.Number, scale float64) {
		if v != nil {
			all = append(all, prometheus.Metric{Name: "ddpbatch_" + name, Help: help, Value: float64(*v) * scale})
		}
	}
	if m := x.train; m != nil {
		all = append(all, prometheus.Metric{Name: "ddpbatch_train_steps_total", Help: "Completed optimizer steps.", Count: true, Value: float64(m.Step)})
		if m.Steps > 0 {
			gauge("train_planned_steps", "Total optimizer steps of the run.", metrics.NewNumber(float64(m.Steps)), 1)
		}
		gauge("train_epoch", "Current epoch, from 0.", metrics.NewNumber(float64(m.Epoch)), 1)
		gauge("train_loss", "Loss that the program reported last.", m.Loss, 1)
		gauge("train_accuracy_ratio", "Training accuracy that the program reported last.", m.Accuracy, 1)
		gauge("train_learning_rate", "Learning rate of the last step.", m.LR, 1)
		gauge("train_samples_per_second", "Samples per second, all ranks.", m.SamplesPerSecond, 1)
		gauge("train_tokens_per_second", "Tokens per second, all ranks.", m.TokensPerSecond, 1)
		gauge("train_step_duration_seconds", "Step time.", m.StepMillis, 1e-3)
		gauge("train_remaining_seconds", "Estimated time to the end of the run.", m.LeftSeconds, 1)
	}
	if m := x.eval; m != nil {
		gauge("eval_loss", "Loss on the held-out data.", m.Loss, 1)
		gauge("eval_accuracy_ratio", "Accuracy on the held-out data.", m.Accuracy, 1)
	}
	return all
}

func (x *programExporter) close() {
	if x.board != nil {
		_ = x.board.Close()
	}
	x.closeProm()
}

// closeProm removes the file for Prometheus, and disables the export.
func (x *programExporter) closeProm() {
	if x.prom == "" {
		return
	}
	if err := os.Remove(x.prom); err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.say(fmt.Sprintf("warning: %v", err))
	}
	x.prom = ""
}
