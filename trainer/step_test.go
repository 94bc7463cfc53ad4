package trainer

import (
	"context"
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// countingDevice is a device with its own memory. It counts how often the host waits for it.
type countingDevice struct {
	device.Device
	waits int
}

func (d *countingDevice) Host() bool { return false }

func (d *countingDevice) Read(dst []float32, src device.Tensor) {
	d.waits++
	d.Device.Read(dst, src)
}

func (d *countingDevice) ReadInts(dst []int32, src device.Tensor) {
	d.waits++
	d.Device.ReadInts(dst, src)
}

func (d *countingDevice) SumSquares(x device.Tensor) float64 {
	d.waits++
	return d.Device.SumSquares(x)
}

func (d *countingDevice) CountEqual(a, b device.Tensor) int {
	d.waits++
	return d.Device.CountEqual(a, b)
}

func (d *countingDevice) NewReading() device.Reading {
	return countingReading{d.Device.NewReading(), d}
}

type countingReading struct {
	device.Reading
	device *countingDevice
}

func (r countingReading) Floats() []float32 {
	r.device.waits++
	return r.Reading.Floats()
}

// simulatedComm is rank 1 of many ranks, whose gradients are zero.
type simulatedComm struct {
	ddp.HostCommunicator
	size, operations int
}

func (c *simulatedComm) Rank() int { return min(1, c.size-1) }
func (c *simulatedComm) Size() int { return c.size }

func (c *simulatedComm) AllReduce(context.Context, device.Tensor) error {
	c.operations++
	return nil
}

func (c *simulatedComm) ReduceScatter(_ context.Context, part, whole device.Tensor) error {
	c.operations++
	n := part.Len()
	copy(part.Floats(), whole.Slice(c.Rank()*n, (c.Rank()+1)*n).Floats())
	return nil
}

func (c *simulatedComm) AllGather(context.Context, device.Tensor, device.Tensor) error {
	c.operations++
	return nil
}

func (c *simulatedComm) Broadcast(context.Context, []byte, int) error { return nil }

// TestStepWaitsOnceForTheDevice checks that the number of device synchronizations, and the number of
// collectives, of a step depend on neither the number of ranks nor the number of micro-batches.
func TestStepWaitsOnceForTheDevice(t *testing.T) {
	const steps = 3
	for _, strategy := range ddp.Strategies() {
		operations := 0 // with 8 ranks
		for _, ranks := range []int{1, 8, 64, 1024} {
			for _, batches := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s, %d ranks, %d micro-batches", strategy, ranks, batches), func(t *testing.T) {
					d, c := &countingDevice{Device: cpu.New(1)}, &simulatedComm{size: ranks}
					s := newTestStepper(t, d, c, ddp.Options{Strategy: strategy, Extra: numExtra, FirstBucket: 64, Bucket: 1 << 10})
					batch := nn.Batch{Samples: 2, X: device.Host(make([]float32, 2*8)), Labels: device.HostInts(make([]int32, 2))}
					b := stepBatches{batches: make([][]int, batches), count: batches, samples: 2 * batches * ranks}
					for step := range steps {
						s.begin(t.Context(), position{Step: int64(step)})
						for i := range b.batches {
							s.forward(&b, i, batch)
							s.setFlags(step == 1, false)
							s.backward(&b, i, batch)
						}
						if err := s.reduce(t.Context()); err != nil {
							t.Fatal(err)
						}
						s.clipAndUpdate(int64(step))
						s.end()
						for {
							o, ok := s.next(s.lag)
							if !ok {
								break
							}
							if !o.isUpdated || o.at.Step != int64(step-1) || strategy == ddp.DDP && o.stop != (step == 2) {
								t.Errorf("after step %d: %+v", step, o)
							}
						}
					}
					if d.waits != steps-1 {
						t.Errorf("the host waits %d times in %d steps, want once for each but the last", d.waits, steps)
					}
					if ranks == 8 && batches == 1 {
						operations = c.operations
					}
					if ranks > 8 && batches == 1 && c.operations != operations {
						t.Errorf("%d collectives, want %d as with 8 ranks", c.operations, operations)
					}
				})
			}
		}
	}
}

// newTestStepper returns a stepper for a small model in several buckets.
func newTestStepper(t *testing.T, d device.Device, c ddp.Communicator, o ddp.Options) *stepper {
	t.Helper()
	m, err := nn.NewMLP(8, nn.MLPOptions{Hidden: []int{16, 16}, Activation: "relu"}, 4)
	if err != nil {
		t.Fatal(err)
	}
	s := &stepper{device: d, model: m, params: m.Params(), schedule: func(int64) float64 { return 0.1 }, clipNorm: 1, rank: c.Rank(), size: c.Size()}
	s.sharder = ddp.New(c, d, s.params, o)
	if o.Strategy != ddp.ZeRO3 {
		m.Init(random.New(1), d)
	}
	m.Plan(nn.Plan{Device: d, Batch: 2, Train: true})
	if s.optimizer, err = optim.New(d, s.sharder.Parts(), optim.Options{Kind: optim.KindSGD, LR: 0.1, Momentum: 0.9}); err != nil {
		t.Fatal(err)
	}
	s.init(false)
	return s
}
