package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// gpuWarmUp is WarmUp for a GPU: the first step selects algorithms, the second one captures the
// graph, and the clocks need a few more to ramp up.
const gpuWarmUp = 5

// gpuTraining is a training run that enqueues each step before the host has the result of the
// previous one.
type gpuTraining struct {
	*ranksTraining
	gpu      device.Accelerator
	results  [2]device.Reading // used alternately
	enqueued int
}

// newGPUTraining creates a training run with a single rank.
func newGPUTraining(d device.Device, m Model, p device.Precision) (*gpuTraining, error) {
	t, err := newSingleRank(d, m, p)
	if err != nil {
		return nil, err
	}
	return &gpuTraining{ranksTraining: t, gpu: d.Accelerator(), results: [2]device.Reading{d.NewReading(), d.NewReading()}}, nil
}

// enqueue enqueues a step.
func (t *gpuTraining) enqueue(ctx context.Context) error {
	t.gpu.Begin()
	if err := t.ranksTraining.enqueue(ctx); err != nil {
		return err
	}
	t.results[t.enqueued%len(t.results)].Begin(t.decision.Result())
	t.gpu.End()
	t.enqueued++
	return nil
}

// sync waits for a step and returns its loss.
func (t *gpuTraining) sync(step int) (loss float64, err error) {
	r := t.results[step%len(t.results)].Floats()
	if loss = float64(r[resultLoss]); r[0] == 0 {
		return loss, fmt.Errorf("step %d: the loss or a gradient is not finite", step)
	}
	t.optimizer.CountStep()
	return loss, nil
}

// gpuStep implements Step on a GPU.
func (b *Bench) gpuStep(ctx context.Context, m Model, p device.Precision, steps int) (r Result, err error) {
	defer device.Recover(&err)
	d, err := b.gpu()
	if err != nil {
		return Result{}, err
	}
	gpu := d.Accelerator()
	if gpu == nil {
		return Result{}, fmt.Errorf("%s is not a GPU: it does not support asynchronous steps", d.Name())
	}
	defer func() { err = errors.Join(err, gpu.Close()) }()
	before := gpu.Available()
	t, err := newGPUTraining(d, m, p)
	if err != nil {
		return Result{}, err
	}
	var losses, seconds []float64
	last, step := time.Now(), 0
	train := func() error {
		loss, err := t.sync(step)
		now := time.Now()
		losses, seconds = append(losses, loss), append(seconds, now.Sub(last).Seconds())
		last, step = now, step+1
		return err
	}
	for range gpuWarmUp + steps {
		if err := context.Cause(ctx); err != nil {
			return Result{}, err
		}
		if err := t.enqueue(ctx); err != nil {
			return Result{}, err
		}
		if t.enqueued-step == len(t.results) {
			if err := train(); err != nil {
				return Result{}, err
			}
		}
	}
	if err := train(); err != nil {
		return Result{}, err
	}
	r = b.rate(Result{Kind: "step", Model: m.Name(), Shape: m.Shape()}, d, p, seconds[gpuWarmUp:], m.flop())
	r.GFLOPS = r.GFLOP / r.Median // not Best: if the host receives one result late, the next step seems short
	r.Unit, r.PerSecond, r.Params = t.unit, float64(t.units)/r.Median, t.params()
	r.FirstLoss, r.Loss = metrics.NewNumber(losses[0]), metrics.NewNumber(losses[len(losses)-1])
	r.DeviceMemory = before - gpu.Available()
	return r, nil
}
