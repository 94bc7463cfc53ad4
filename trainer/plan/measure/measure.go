// Package measure finds the numbers that package plan needs on this machine: how
// fast a rank computes a model's step, and how fast messages between two ranks are.
//
// Both take some seconds. It does not know what the machines are like on which the
// job will run, or how fast the network between them is.
package measure

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Options are what is measured.
type Options struct {
	Model     func() (nn.Model, error) // makes it anew
	Sample    plan.Sample
	Batch     int // samples of a micro-batch
	Precision device.Precision
	Threads   int
	Memory    float64 // bytes that may be taken, 0 for any number
	// Update makes what moves the parameters of a model by their gradients.
	Update func(device.Device, []*nn.Param) (func(), error)
	// Element is what a parameter takes.
	Element plan.Element
}

// Speed is that of one rank.
type Speed struct {
	FLOPS     float64 // operations a second in forward and backward passes
	Bandwidth float64 // bytes a second in updates
	Batch     int     // samples that were computed at once
}

// maxFLOP bounds the work of a measured step: smaller batches than the job's are as
// fast as long as they are large.
const maxFLOP = 100e9

// A step is done at least so often and for so long. The first, which touches memory for
// the first time, is left out; of the others the fastest counts.
const (
	runs     = 4
	duration = time.Second
)

// Compute times steps of the model on zeros, which take the time of any numbers.
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
		return Speed{}, tooLarge{fmt.Errorf("measure a step: %d samples need %s of memory, and %s are free", batch, format.Bytes(need), format.Bytes(o.Memory))}
	}
	d := cpu.New(o.Threads)
	params := m.Params()
	nn.Place(d, params)
	nn.PlaceGrads(d, params)
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

// tooLarge is a model that this machine cannot hold.
type tooLarge struct{ error }

// Hint says what to do about it.
func (tooLarge) Hint() string {
	return "measure on a larger machine, or give the speed of a rank: --gflops"
}
