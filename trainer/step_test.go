package trainer

import (
	"context"
	"fmt"
	"strings"
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

// simulatedComm is rank 1 of many ranks, which all have the same gradients and scalars.
type simulatedComm struct {
	ddp.HostCommunicator
	size, operations int
	scalars          func() device.Tensor // of this rank
}

func (c *simulatedComm) Rank() int { return min(1, c.size-1) }
func (c *simulatedComm) Size() int { return c.size }

func (c *simulatedComm) AllReduce(_ context.Context, buf device.Tensor) (ddp.Work, error) {
	c.operations++
	for i, v := range buf.Floats() {
		buf.Floats()[i] = float32(c.size) * v
	}
	return nil, nil
}

func (c *simulatedComm) ReduceScatter(ctx context.Context, part, whole device.Tensor) (ddp.Work, error) {
	n := part.Len()
	copy(part.Floats(), whole.Slice(c.Rank()*n, (c.Rank()+1)*n).Floats())
	return c.AllReduce(ctx, part)
}

// AllGather receives the sums of the scalars from rank 0, if whole holds the records of the ranks.
func (c *simulatedComm) AllGather(_ context.Context, whole, _ device.Tensor) (ddp.Work, error) {
	c.operations++
	if whole.Len() == 2*c.size*(1+numExtra) {
		record := device.At(device.Float64, whole.Base(), 1+numExtra).Doubles()
		for i, v := range c.scalars().Floats() {
			record[1+i] = float64(c.size) * float64(v)
		}
	}
	return nil, nil
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
							o, ok, err := s.next(t.Context(), s.lag)
							if err != nil {
								t.Fatal(err)
							}
							if !ok {
								break
							}
							if !o.isUpdated || o.at.Step != int64(step-1) || o.stop != (step == 2) {
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
	if c, ok := c.(*simulatedComm); ok {
		c.scalars = s.sharder.Extra
	}
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

// TestDifferentOperationsAreFound checks that a rank finds that others have run other operations since
// the step before.
func TestDifferentOperationsAreFound(t *testing.T) {
	const ranks = 4
	for name, strategy := range map[string]ddp.Strategy{"ddp": ddp.DDP, "zero1": ddp.ZeRO1} {
		t.Run(name, func(t *testing.T) {
			c := &simulatedComm{size: ranks}
			s := newTestStepper(t, cpu.New(1), c, ddp.Options{Strategy: strategy, Extra: numExtra, FirstBucket: 64, Bucket: 1 << 10})
			batch := nn.Batch{Samples: 2, X: device.Host(make([]float32, 2*8)), Labels: device.HostInts(make([]int32, 2))}
			b := stepBatches{batches: make([][]int, 1), count: 1, samples: 2 * ranks}
			for step := range 3 {
				s.begin(t.Context(), position{Step: int64(step)})
				if step == 2 { // as if this rank had run another operation than the others
					s.results[step%len(s.results)].hash[1]++
				}
				s.forward(&b, 0, batch)
				s.backward(&b, 0, batch)
				if err := s.reduce(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.clipAndUpdate(int64(step))
				s.end()
				_, ok, err := s.next(t.Context(), 0)
				if step < 2 && (err != nil || !ok) {
					t.Fatalf("step %d: %v", step, err)
				}
				if step == 2 && (ok || err == nil || !strings.Contains(err.Error(), "step 2: the ranks ran different operations")) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}
