package trainer

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// retentionPolicy returns the job's retention policy for checkpoints.
func (r *run) retentionPolicy() checkpoint.Retention {
	c := r.Job.Checkpoint
	k := checkpoint.Retention{Newest: c.Keep, Best: string(c.KeepBest), Highest: c.KeepBest == jobs.MetricAccuracy}
	switch c.KeepEvery.Unit {
	case jobs.Steps:
		k.Steps = c.KeepEvery.N
	case jobs.Epochs:
		k.Epochs = c.KeepEvery.N
	}
	return k
}

// checkKeepBest returns an error if the data do not provide the metric of checkpoint.keep_best.
func (r *run) checkKeepBest() error {
	best := r.Job.Checkpoint.KeepBest
	if best == "" || r.eval != nil && (best != jobs.MetricAccuracy || r.eval.Classes()) {
		return nil
	}
	return unmeasuredError(best)
}

// unmeasuredError is the error for a checkpoint.keep_best that is never measured.
type unmeasuredError string

func (m unmeasuredError) Error() string {
	return fmt.Sprintf("checkpoint.keep_best is %q, but these data do not provide it", string(m))
}

// Hint returns the fix.
func (unmeasuredError) Hint() string {
	return "add held-out data (train.data.eval_path or holdout), with classes for accuracy, or unset keep_best"
}

// bestSavedMetric returns the best metric of the existing checkpoints, or NaN if none has it.
func (r *run) bestSavedMetric() (float64, error) {
	k := r.retentionPolicy()
	if k.Best == "" {
		return math.NaN(), nil
	}
	entries, err := checkpoint.List(r.Checkpoints)
	if err != nil {
		return 0, err
	}
	value, at := k.BestOf(entries)
	if at < 0 {
		return math.NaN(), nil
	}
	return value, nil
}

// improved reports whether the evaluation that has just ended had the best result so far, by the
// metric of checkpoint.keep_best.
func (r *run) improved() bool {
	k := r.retentionPolicy()
	now, measured := r.lastMetrics[k.Best]
	if k.Best == "" || !measured || math.IsNaN(now) {
		return false
	}
	if math.IsNaN(r.bestMetric) || now != r.bestMetric && (now > r.bestMetric) == k.Highest {
		r.bestMetric = now
		return true
	}
	return false
}
