package trainer

import (
	"context"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// evaluate measures the held-out data, each sample once over all ranks. Between
// batches ranks ask each other whether one was asked to stop; then it ends without a
// result. Every rank does as many batches, since ranks may need each other's weights
// in each: one that has no more samples takes the first again, which does not count.
func (r *run) evaluate(ctx context.Context) (stopped bool, err error) {
	r.at.Unevaluated = false
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
	sums := make([]float64, 3) // of losses, of right answers, of what they are out of
	stop := make([]float64, 1)
	for i := range rounds {
		if r.askedToStop() {
			stop[0] = 1
		}
		if err := r.Comm.Do(ctx, collective.AllReduce(stop, collective.Sum)); err != nil {
			return false, fmt.Errorf("evaluate after epoch %d: %w", r.at.Epoch, err)
		}
		if stop[0] > 0 {
			r.at.Unevaluated = true
			return true, nil
		}
		read, n, err := r.evalLoad.Next()
		if err != nil {
			return false, err
		}
		r.sharder.Start(ctx)
		out := r.model.Forward(r.uploaded.batch(r.device, read, n, r.batch), nn.Pass{Stride: 1, Owner: r.sharder.Owner()})
		if err := r.sharder.Stop(); err != nil {
			return false, fmt.Errorf("evaluate after epoch %d: %w", r.at.Epoch, err)
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
		return false, fmt.Errorf("evaluate after epoch %d: %w", r.at.Epoch, err)
	}
	e := Event{Kind: Evaluated, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Loss: sums[0] / sums[2], Accuracy: math.NaN()}
	r.last["eval_loss"] = e.Loss
	if r.eval.Classes() {
		e.Accuracy = sums[1] / sums[2]
		r.last["accuracy"] = e.Accuracy
	}
	r.Observe(e)
	return false, nil
}

// evalBatches is what this rank evaluates, and the most batches that a rank has.
func (r *run) evalBatches() (batches [][]int, rounds int) {
	for i := r.Comm.Rank(); i < r.eval.Len(); i += r.Comm.Size() {
		if n := len(batches); n == 0 || len(batches[n-1]) == r.batch {
			batches = append(batches, nil)
		}
		last := &batches[len(batches)-1]
		*last = append(*last, i)
	}
	return batches, (perRank(r.eval.Len(), r.Comm.Size()) + r.batch - 1) / r.batch
}

// perRank is the samples of the rank that has most.
func perRank(samples, ranks int) int { return (samples + ranks - 1) / ranks }

// askedToStop says whether this rank was.
func (r *run) askedToStop() bool {
	select {
	case <-r.Stop:
		return true
	default:
		return false
	}
}
