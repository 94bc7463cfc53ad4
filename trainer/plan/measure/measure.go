// Package measure measures the inputs of package plan on this machine: the speed of a model's step
// on one rank, and of messages between two ranks.
//
// Each measurement takes a few seconds. The package does not measure the machines and the network on
// which the job will run.
package measure

import (
	"context"
	"math"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Options configures a measurement.
type Options struct {
	Model     func() (nn.Model, error) // creates a new instance
	Sample    plan.Sample
	Batch     int // samples per micro-batch
	Precision device.Precision
	Threads   int
	Memory    float64 // maximum memory in bytes, 0 for no limit
	// Update returns a function that updates the parameters of a model with their gradients.
	Update func(device.Device, []*nn.Param) (func(), error)
	// Element is the memory per parameter element.
	Element plan.Element
}

// Speed is the speed of one rank.
type Speed struct {
	FLOPS     float64 // FLOP/s of forward and backward passes
	Bandwidth float64 // bytes per second of updates
	Batch     int     // samples per measured batch
}

// maxFLOP limits the work of a measured step: a smaller batch than the job's has the same speed if
// it is still large.
const maxFLOP = 100e9

// A measurement runs at least this many steps and at least this long. It skips the first step,
// which touches memory for the first time, and uses the fastest of the others.
const (
	runs     = 4
	duration = time.Second
)

// Compute measures steps of the model on zeros, which take as long as other values.
func Compute(ctx context.Context, o Options) (Speed, error) {
	m, err := o.Model()
	if err != nil {
		return Speed{}, err
	}
	batch := o.Batch
	if one := plan.Count(m, o.Sample, 1, o.Precision, false).FLOP(); float64(batch)*one > maxFLOP {
		batch = max(1, int(maxFLOP/one))
	}
	w := plan.Count(m, o.Sample, batch, o.Precision, false)
	if need := w.Memory(ddp.DDP, o.Element, 1, plan.Program{}).Total(); o.Memory > 0 && need > o.Memory {
		return Speed{}, hints.Errorf("measure on a larger machine, or give the speed of a rank: --gflops",
			"measure a step: %d samples need %s of memory, and %s are free", batch, format.Bytes(need), format.Bytes(o.Memory))
	}
	d := cpu.New(o.Threads)
	params := m.Params()
	nn.AllocValues(d, params)
	nn.AllocGrads(d, params)
	m.Plan(nn.Plan{Device: d, Batch: batch, Precision: o.Precision, Train: true})
	m.Init(random.New(0), d)
	update, err := o.Update(d, params)
	if err != nil {
		return Speed{}, err
	}
	b := o.Sample.Batch(d, batch)
	pass := nn.Pass{Train: true, Weight: 1, Stride: 1}
	step, moving := math.Inf(1), math.Inf(1)
	start := time.Now()
	for i := 0; i < runs || time.Since(start) < duration; i++ {
		if err := context.Cause(ctx); err != nil {
			return Speed{}, err
		}
		begin := time.Now()
		m.Forward(b, pass)
		m.Backward(b, pass, nil)
		computed := time.Now()
		update()
		if i > 0 {
			step = min(step, computed.Sub(begin).Seconds())
			moving = min(moving, time.Since(computed).Seconds())
		}
	}
	return Speed{w.FLOP() / step, float64(w.NumParams()) * o.Element.Update / moving, batch}, nil
}
