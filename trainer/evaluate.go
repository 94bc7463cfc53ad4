package trainer

import (
	"context"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// An evaluator computes the metrics of the held-out data. It needs no job.
type evaluator struct {
	comm          collective.Communicator
	data          data.Dataset
	loader        *data.Loader
	device        device.Device
	model         nn.Model
	sharder       *ddp.Sharder
	input         *deviceBatch
	batch         int // maximum samples per batch
	stopRequested func() bool
	progress      *Progress
}

// evaluation holds the metrics of the held-out data.
type evaluation struct {
	loss, accuracy float64 // accuracy is NaN for regression
	stopped        bool    // a rank was asked to stop, and there are no metrics
}

// run evaluates each sample once across ranks. Between batches, the ranks check whether one of them
// was asked to stop. Then run returns without metrics. Every rank runs the same number of batches,
// because ranks may need each other's weights in each batch. A rank without remaining samples repeats
// sample 0 and ignores the result.
func (e *evaluator) run(ctx context.Context) (evaluation, error) {
	batches, rounds := e.batches()
	ownBatches := len(batches)
	for len(batches) < rounds {
		batches = append(batches, []int{0})
	}
	e.loader.Start(batches)
	defer e.loader.Stop()
	sums := make([]float64, 3) // losses, correct predictions, predictions
	stop := make([]float64, 1)
	for i := range rounds {
		if e.stopRequested() {
			stop[0] = 1
		}
		if err := e.comm.Do(ctx, collective.AllReduce(stop, collective.Sum)); err != nil {
			return evaluation{}, err
		}
		if stop[0] > 0 {
			return evaluation{stopped: true}, nil
		}
		read, n, err := e.loader.Next()
		if err != nil {
			return evaluation{}, dataError{err}
		}
		e.sharder.Start(ctx)
		out := e.model.Forward(e.input.upload(e.device, read, n, e.batch), nn.Pass{Stride: 1, Owner: e.sharder.Owner()})
		if err := e.sharder.Stop(ctx); err != nil {
			return evaluation{}, err
		}
		e.progress.done.Add(1)
		if i >= ownBatches {
			continue
		}
		sums[0] += out.Loss * float64(out.Count)
		sums[1] += float64(out.Correct)
		sums[2] += float64(out.Count)
	}
	if err := e.comm.Do(ctx, collective.AllReduce(sums, collective.Sum)); err != nil {
		return evaluation{}, err
	}
	result := evaluation{loss: sums[0] / sums[2], accuracy: math.NaN()}
	if e.data.Classes() {
		result.accuracy = sums[1] / sums[2]
	}
	return result, nil
}

// batches returns this rank's batches, and the maximum number of batches of any rank.
func (e *evaluator) batches() (batches [][]int, rounds int) {
	for i := e.comm.Rank(); i < e.data.Len(); i += e.comm.Size() {
		if n := len(batches); n == 0 || len(batches[n-1]) == e.batch {
			batches = append(batches, nil)
		}
		last := &batches[len(batches)-1]
		*last = append(*last, i)
	}
	return batches, roundedUp(roundedUp(e.data.Len(), e.comm.Size()), e.batch)
}

// dataError is an error of the data, which names the file.
type dataError struct{ error }
