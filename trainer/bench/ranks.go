package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// ranksTraining is a training run on one or more ranks, each with its own samples. It has the steps
// of the trainer.
type ranksTraining struct {
	*training
	sharder  *ddp.Sharder
	decision device.StepDecision
	ready    func(int) // sharder.Ready as a value, created once because creating it allocates
	ranks    int
}

// resultLoss is the index of the loss in the result of a decision.
const resultLoss = 2

// shard creates the optimizer of a rank for the parameters of a sharder with one scalar, the loss.
func (t *training) shard(s *ddp.Sharder, ranks int) (*ranksTraining, error) {
	r := &ranksTraining{training: t, sharder: s, decision: t.device.NewStepDecision(1), ready: s.Ready, ranks: ranks}
	var err error
	t.optimizer, err = t.newOptimizer(s.Parts())
	return r, err
}

// newSingleRank creates a training run with a single rank.
func newSingleRank(d device.Device, m Model, p device.Precision) (*ranksTraining, error) {
	var sharder *ddp.Sharder
	t, err := m.prepare(d, p, 0, func(d device.Device, params []*nn.Param) {
		sharder = ddp.New(ddp.NewCommunicator(collective.SingleRank{}), d, params, ddp.Options{Extra: 1, Rounded: d.Stored(p) == device.BFloat16})
	})
	if err != nil {
		return nil, err
	}
	return t.shard(sharder, 1)
}

// shardTo creates the sharder and the optimizer of a rank, and sends the initial weights.
func (t *training) shardTo(ctx context.Context, comm collective.Communicator, o ddp.Options) (*ranksTraining, error) {
	params := t.model.Params()
	var initial, parts [][]float32
	for _, p := range params {
		initial = append(initial, p.Data.Floats())
	}
	o.Extra = 1
	s := ddp.New(ddp.NewCommunicator(comm), t.device, params, o)
	for _, p := range s.Parts() {
		parts = append(parts, p.Data.Floats())
	}
	err := s.ScatterState(ctx, parts, func(send ddp.SendParam) error {
		for i, values := range initial {
			if err := send(i, func(at int, to []float32) error { copy(to, values[at:]); return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.MarkWritten()
	return t.shard(s, comm.Size())
}

// enqueue enqueues a step.
func (r *ranksTraining) enqueue(ctx context.Context) error {
	weight := 1 / float32(r.ranks)
	pass := nn.Pass{Train: true, Weight: weight, Stride: 1, Owner: r.sharder.Owner(), DeferLoss: true}
	r.sharder.Start(ctx)
	r.model.Forward(r.batch, pass)
	rows, parts := r.model.Losses()
	r.decision.AddLoss(r.sharder.Extra(), rows, parts, float64(weight))
	r.model.Backward(r.batch, pass, r.ready)
	if err := r.sharder.Finish(ctx); err != nil {
		return err
	}
	r.decision.Reduce(r.sharder.Records())
	r.optimizer.StepAsync(r.sharder.Parts(), r.decision, r.clip)
	r.sharder.MarkUpdated()
	return nil
}

// step runs a step on the CPU and returns the mean loss over all ranks before the update.
func (r *ranksTraining) step(ctx context.Context) (float64, error) {
	if err := r.enqueue(ctx); err != nil {
		return 0, err
	}
	result := r.decision.Result().Floats()
	if result[0] != 0 {
		r.optimizer.CountStep()
	}
	return float64(result[resultLoss]), nil
}

// RankStep runs [Bench.Step] on a rank of comm. Every rank must call it. Each rank returns its own
// times, and the rates of all ranks computed from them.
func (b *Bench) RankStep(ctx context.Context, comm collective.Communicator, m Model, p device.Precision, steps int, o ddp.Options) (Result, error) {
	d, ranks := b.newDevice(), comm.Size()
	t, err := m.prepare(d, p, comm.Rank(), allocParams)
	if err != nil {
		return Result{}, err
	}
	r, err := t.shardTo(ctx, comm, o)
	if err != nil {
		return Result{}, err
	}
	b.measurePeak(p)
	var losses, seconds []float64
	for i := range WarmUp + steps {
		if i == WarmUp {
			r.sharder.TakeTimes()
		}
		var loss float64
		took := timed(func() { loss, err = r.step(ctx) })
		if err != nil {
			return Result{}, fmt.Errorf("step %d on rank %d: %w", i, comm.Rank(), err)
		}
		losses, seconds = append(losses, loss), append(seconds, took)
	}
	times := r.sharder.TakeTimes()
	if err := comm.Do(ctx, collective.Barrier()); err != nil { // measure the peak of a core while the others are busy
		return Result{}, err
	}
	b.measurePeak(p)
	found := b.rate(Result{Kind: "step", Model: m.Name(), Shape: m.Shape(), Ranks: ranks}, d, p, seconds[WarmUp:], float64(ranks)*m.flop())
	found.Peak *= float64(ranks)
	found.Share /= float64(ranks)
	found.Unit, found.PerSecond, found.Params = t.unit, float64(ranks*t.units)/found.Median, t.params()
	found.FirstLoss, found.Loss = metrics.NewNumber(losses[0]), metrics.NewNumber(losses[len(losses)-1])
	found.Communication = times.Busy.Seconds() / float64(steps)
	if times.Busy > 0 {
		found.Hidden = max(0, 1-times.Exposed.Seconds()/times.Busy.Seconds())
	}
	if found.Reduce = "fp32"; o.BF16 {
		found.Reduce = "bf16"
	}
	largest := slices.MaxFunc(r.sharder.Parts(), func(a, b *nn.Param) int { return a.Len() - b.Len() })
	found.Transport = comm.Path(collective.AllReduce(largest.Grad.Floats(), collective.Sum)).Transport
	return found, nil
}
