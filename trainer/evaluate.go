package trainer

import (
	"context"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// evaluate computes the metrics of the held-out data, each sample once across ranks. Between
// batches, the ranks check whether one of them was asked to stop. Then evaluate returns without a
// result. Every rank runs the same number of batches, because ranks may need each other's weights
// in each batch. A rank without remaining samples repeats sample 0 and ignores the result.
func (r *run) evaluate(ctx context.Context) (stopped bool, err error) {
	r.pos.Unevaluated = false
	if r.eval == nil {
		return false, nil
	}
	defer r.Progress.enter(phaseEvaluating)()
	defer r.Trace.Add(trace.Evaluate, 0, r.Trace.Now())
	batches, rounds := r.evalBatches()
	mine := len(batches)
	for len(batches) < rounds {
		batches = append(batches, []int{0})
	}
	r.evalLoad.Start(batches)
	defer r.evalLoad.Stop()
	sums := make([]float64, 3) // losses, correct predictions, predictions
	stop := make([]float64, 1)
	for i := range rounds {
		if r.stopRequested() {
			stop[0] = 1
		}
		if err := r.Comm.Do(ctx, collective.AllReduce(stop, collective.Sum)); err != nil {
			return false, fmt.Errorf("evaluate after epoch %d: %w", r.pos.Epoch, err)
		}
		if stop[0] > 0 {
			r.pos.Unevaluated = true
			return true, nil
		}
		read, n, err := r.evalLoad.Next()
		if err != nil {
			return false, err
		}
		r.sharder.Start(ctx)
		out := r.model.Forward(r.stepper.input.upload(r.device, read, n, r.batch), nn.Pass{Stride: 1, Owner: r.sharder.Owner()})
		if err := r.sharder.Stop(); err != nil {
			return false, fmt.Errorf("evaluate after epoch %d: %w", r.pos.Epoch, err)
		}
		r.Progress.done.Add(1)
		if i >= mine {
			continue
		}
		sums[0] += out.Loss * float64(out.Count)
		sums[1] += float64(out.Correct)
		sums[2] += float64(out.Count)
	}
	if err := r.Comm.Do(ctx, collective.AllReduce(sums, collective.Sum)); err != nil {
		return false, fmt.Errorf("evaluate after epoch %d: %w", r.pos.Epoch, err)
	}
	e := Event{Kind: Evaluated, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs, Loss: sums[0] / sums[2], Accuracy: math.NaN()}
	r.lastMetrics["eval_loss"] = e.Loss
	if r.eval.Classes() {
		e.Accuracy = sums[1] / sums[2]
		r.lastMetrics["accuracy"] = e.Accuracy
	}
	r.Observe(e)
	return false, nil
}

// evalBatches returns this rank's batches, and the maximum number of batches of any rank.
func (r *run) evalBatches() (batches [][]int, rounds int) {
	for i := r.Comm.Rank(); i < r.eval.Len(); i += r.Comm.Size() {
		if n := len(batches); n == 0 || len(batches[n-1]) == r.batch {
			batches = append(batches, nil)
		}
		last := &batches[len(batches)-1]
		*last = append(*last, i)
	}
	return batches, roundedUp(perRank(r.eval.Len(), r.Comm.Size()), r.batch)
}

// perRank returns the maximum number of samples of a rank.
func perRank(samples, ranks int) int { return roundedUp(samples, ranks) }

// stopRequested reports whether this rank was asked to stop.
func (r *run) stopRequested() bool {
	select {
	case <-r.Stop:
		return true
	default:
		return false
	}
}
