package bench

import (
	"context"
	"runtime/debug"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// WarmUp is the number of steps that are not timed. They touch memory for the first time, and
// caches and clock frequencies become stable.
const WarmUp = 2

// Step measures this number of training steps of a model, at least 1. The error is the context's,
// the model's, or the device's.
func (b *Bench) Step(ctx context.Context, m Model, p device.Precision, steps int) (Result, error) {
	debug.FreeOSMemory() // free the memory of the previous measurement
	if b.gpu != nil {
		return b.gpuStep(ctx, m, p, steps)
	}
	known := resetPeakRSS()
	d := b.newDevice()
	t, err := newSingleRank(d, m, p)
	if err != nil {
		return Result{}, err
	}
	b.measurePeak(p)
	var losses, seconds []float64
	for range WarmUp + steps {
		var loss float64
		took := timed(func() { loss, err = t.step(ctx) })
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return Result{}, err
		}
		losses, seconds = append(losses, loss), append(seconds, took)
	}
	b.measurePeak(p)
	r := b.rate(Result{Kind: "step", Model: m.Name(), Shape: m.Shape()}, d, p, seconds[WarmUp:], m.flop())
	r.Unit, r.PerSecond = t.unit, float64(t.units)/r.Median
	r.Params = t.params()
	r.FirstLoss, r.Loss = metrics.NewNumber(losses[0]), metrics.NewNumber(losses[len(losses)-1])
	if known {
		r.PeakRSS = peakRSS()
	}
	return r, nil
}
