package trainer

import (
	"context"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// evaluate measures the held-out data, each sample once over all ranks.
func (r *run) evaluate(ctx context.Context) error {
	if r.eval == nil {
		return nil
	}
	var batches [][]int
	for i := r.Comm.Rank(); i < r.eval.Len(); i += r.Comm.Size() {
		if n := len(batches); n == 0 || len(batches[n-1]) == int(r.train.Batch) {
			batches = append(batches, nil)
		}
		last := &batches[len(batches)-1]
		*last = append(*last, i)
	}
	r.evalLoad.Start(batches)
	defer r.evalLoad.Stop()
	sums := make([]float64, 3) // of losses, of right answers, of what they are out of
	for {
		read, n := r.evalLoad.Next()
		if n == 0 {
			break
		}
		out := r.model.Forward(upload(r.device, read, n), nn.Pass{Stride: 1})
		sums[0] += out.Loss * float64(out.Count)
		sums[1] += float64(out.Correct)
		sums[2] += float64(out.Count)
	}
	if err := r.Comm.AllReduceFloat64(ctx, sums); err != nil {
		return fmt.Errorf("evaluate after epoch %d: %w", r.at.Epoch, err)
	}
	e := Event{Kind: Evaluated, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Loss: sums[0] / sums[2], Accuracy: math.NaN()}
	r.last["eval_loss"] = e.Loss
	if r.eval.Classes() {
		e.Accuracy = sums[1] / sums[2]
		r.last["accuracy"] = e.Accuracy
	}
	r.Observe(e)
	return nil
}
