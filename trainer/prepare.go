package trainer

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// PrepareStep returns a function that enqueues a training step of a single rank on a device, with the
// given batch as each micro-batch. It does not initialize the weights, and it never reads a result. It
// shows which operations a step has, for predictions and tests.
func PrepareStep(d device.Device, m nn.Model, batch nn.Batch, t *jobs.Train) (step func(context.Context) error, err error) {
	params := m.Params()
	s := &stepper{device: d, model: m, params: params, schedule: func(int64) float64 { return float64(t.Optimizer.LR) },
		clipNorm: float64(t.Optimizer.ClipNorm), seed: t.Seed, size: 1}
	s.sharder = ddp.New(ddp.NewCommunicator(collective.SingleRank{}), d, params, ddp.Options{Extra: numExtra, FirstBucket: int(t.FirstBucket), Bucket: int(t.Bucket),
		Rounded: d.Stored(precision(t.Precision)) == device.BFloat16})
	m.Plan(nn.Plan{Device: d, Batch: batch.Samples, Precision: precision(t.Precision), Train: true})
	if s.optimizer, err = NewOptimizer(d, s.sharder.Parts(), &t.Optimizer); err != nil {
		return nil, fmt.Errorf("build optimizer: %w", err)
	}
	s.optimizer.SetGroups(parameterGroups(&t.Optimizer)...)
	s.init(false)
	s.sharder.Start(context.Background()) // rounds the weights, which a step does not repeat
	if err := s.sharder.Stop(context.Background()); err != nil {
		return nil, err
	}
	n := max(1, t.Accumulate)
	b := &stepBatches{batches: make([][]int, n), count: n, samples: n * batch.Samples}
	return func(ctx context.Context) error {
		s.begin(ctx, position{})
		for i := range n {
			s.forward(b, i, batch)
			s.backward(b, i, batch)
		}
		if err := s.reduce(ctx); err != nil {
			return err
		}
		s.clipAndUpdate(0)
		s.end()
		return nil
	}, nil
}
