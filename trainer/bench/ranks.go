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

// ranksTraining is a training run on several ranks, each with its own samples.
type ranksTraining struct {
	*training
	sharder *ddp.Sharder
	ready   func(int) // sharder.Ready as a value, created once because creating it allocates
	ranks   int
}

// shard creates the sharder and the optimizer of a rank, and sends the initial weights.
func (t *training) shard(ctx context.Context, comm collective.Communicator, o ddp.Options) (*ranksTraining, error) {
	params := t.model.Params()
	var drawn, parts [][]float32
	for _, p := range params {
		drawn = append(drawn, p.Data.Floats())
	}
	o.Extra = 1 // the loss
	r := &ranksTraining{training: t, ranks: comm.Size()}
	r.sharder = ddp.New(ddp.NewCommunicator(comm), t.device, params, o)
	r.ready = r.sharder.Ready
	for _, p := range r.sharder.Parts() {
		parts = append(parts, p.Data.Floats())
	}
	err := r.sharder.ScatterState(ctx, parts, func(give ddp.Give) error {
		for i, values := range drawn {
			if err := give(i, func(at int, to []float32) error { copy(to, values[at:]); return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.sharder.MarkUpdated()
	t.optimizer, err = t.newOptimizer(r.sharder.Parts())
	return r, err
}

// step runs a step and returns the mean loss over all ranks before the update.
func (r *ranksTraining) step(ctx context.Context) (float64, error) {
	pass := nn.Pass{Train: true, Weight: 1 / float32(r.ranks), Stride: 1, Owner: r.sharder.Owner()}
	r.sharder.Start(ctx)
	r.sharder.Extra()[0] = pass.Weight * float32(r.model.Forward(r.batch, pass).Loss)
	r.model.Backward(r.batch, pass, r.ready)
	if err := r.sharder.Finish(ctx); err != nil {
		return 0, err
	}
	r.update(r.sharder.Parts(), r.sharder.Norm())
	r.sharder.MarkUpdated()
	return float64(r.sharder.Extra()[0]), nil
}

// RankStep runs [Bench.Step] on a rank of comm. Every rank must call it. Each rank returns its own
// times, and the rates of all ranks computed from them.
func (b *Bench) RankStep(ctx context.Context, comm collective.Communicator, m Model, p device.Precision, steps int, o ddp.Options) (Result, error) {
	d, ranks := b.newDevice(), comm.Size()
	t, err := m.prepare(d, p, comm.Rank(), allocParams)
	if err != nil {
		return Result{}, err
	}
	r, err := t.shard(ctx, comm, o)
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
