//go:build cuda

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/nccl/gpu"
	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

func TestMain(m *testing.M) {
	os.Setenv("GPUSIM_DEVICES", "4")
	gpusim.Main(m)
}

// TestStrategies checks that every strategy on GPUs with NCCL gives the losses of the CPU,
// within a tolerance. In bfloat16, sums are rounded in a different order.
func TestStrategies(t *testing.T) {
	for _, s := range ddp.Strategies() {
		for _, c := range []struct {
			ranks int
			bf16  bool
			most  float64
		}{{2, false, 1e-4}, {4, false, 1e-4}, {2, true, 1e-2}} {
			n, o := c.ranks, ddp.Options{Strategy: s, BF16: c.bf16, Extra: 1, FirstBucket: 1 << 10, Bucket: 3 << 10}
			t.Run(fmt.Sprintf("%v on %d, bf16 %t", s, n, c.bf16), func(t *testing.T) {
				local := collective.Local(n, time.Minute)
				var initial [][]float32 // weights
				want := conformance.Every(t, n, func(r int) ([]float64, error) {
					return trained(t.Context(), cpu.New(1), ddp.NewCommunicator(local[r]), o, nil, func(w [][]float32) {
						if r == 0 {
							initial = w
						}
					})
				})
				got := onGPUs(t, n, o, initial)
				for r := range n {
					for i := range want[r] {
						if !(math.Abs(got[r][i]-want[r][i]) <= c.most*math.Abs(want[r][i])) {
							t.Fatalf("rank %d, step %d: a loss of %v, want %v", r, i, got[r][i], want[r][i])
						}
					}
				}
				if first, last := got[0][0], got[0][len(got[0])-1]; !(last < 0.9*first) {
					t.Errorf("nothing was learnt: %v to %v", first, last)
				}
			})
		}
	}
}

// onGPUs trains with a simulated GPU for each rank.
func onGPUs(t *testing.T, n int, o ddp.Options, initial [][]float32) [][]float64 {
	l, err := libnccl.Open(library.Find(os.LookupEnv, library.NCCL))
	if err != nil {
		t.Fatal(err)
	}
	control := conformance.Processes(t, n, collective.Options{})
	return conformance.Every(t, n, func(r int) ([]float64, error) {
		g, err := driver.Open(r)
		if err != nil {
			return nil, err
		}
		info, err := driver.Describe(r)
		if err != nil {
			return nil, err
		}
		d, err := engine.Open(g, engine.Options{})
		if err != nil {
			return nil, err
		}
		own := gpu.Of(g, info)
		c, err := communicator.Connect(t.Context(), communicator.Options{Library: l, GPU: own, Control: control[r], Check: true,
			Host: "localhost", ConnectTimeout: time.Minute, Timeout: time.Minute})
		if err != nil {
			return nil, err
		}
		operations := own.NewOperations(c, d)
		losses, err := trained(t.Context(), d, ddp.NewDeviceCommunicator(operations, control[r], operations.Mark), o, initial, nil)
		return losses, errors.Join(err, operations.Close(), control[r].Close(), d.Close(), g.Close())
	})
}

var shape = nn.GPTOptions{Vocabulary: 11, Context: 6, Layers: 3, Heads: 2, Width: 16}

// trained returns the loss of a rank at each step. Training starts from initial or, if it is
// nil, from random weights, which trained passes to show.
func trained(ctx context.Context, d device.Device, c ddp.Communicator, o ddp.Options, initial [][]float32, show func([][]float32)) (losses []float64, err error) {
	const steps, samples = 12, 2
	m, err := nn.NewGPT(shape)
	if err != nil {
		return nil, err
	}
	params := m.Params()
	if initial == nil {
		nn.AllocValues(d, params)
		m.Init(random.New(1), d)
		for _, p := range params {
			initial = append(initial, append([]float32(nil), device.Floats(d, p.Data)...))
		}
		show(initial)
	}
	sharder := ddp.New(c, d, params, o)
	var parts [][]float32
	for _, p := range sharder.Parts() {
		parts = append(parts, make([]float32, p.Len()))
	}
	sharder.EachRange(parts, func(param, at int, values []float32) { copy(values, initial[param][at:]) })
	for i, p := range sharder.Parts() {
		d.Write(p.Data, parts[i])
	}
	sharder.MarkUpdated()
	adam, err := optim.New(d, sharder.Parts(), optim.Options{Kind: optim.KindAdamW, LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1})
	if err != nil {
		return nil, err
	}
	m.Plan(nn.Plan{Device: d, Batch: samples, Train: true})
	n := samples * shape.Context
	b := nn.Batch{Samples: samples, Tokens: d.Alloc(device.Int32, n), Labels: d.Alloc(device.Int32, n)}
	decision, result := d.NewStepDecision(1), d.NewReading()
	for step := range steps {
		sharder.Start(ctx)
		for batch := range 2 {
			tokens, labels := make([]int32, n), make([]int32, n)
			for i := range tokens {
				v := int32(i*7+step*3+batch+c.Rank()*5) % 11
				tokens[i], labels[i] = v, (v*v+3)%11
			}
			d.WriteInts(b.Tokens, tokens)
			d.WriteInts(b.Labels, labels)
			last, each := batch == 1, sharder.ReducesEachBatch()
			pass := nn.Pass{Train: true, Weight: 1 / float32(2*c.Size()), Stride: 1, Owner: sharder.Owner(), Accumulate: batch > 0 && !each}
			m.Forward(b, pass)
			rows, parts := m.Losses()
			decision.AddLoss(sharder.Extra(), rows, parts, 1)
			ready := sharder.Ready
			if !last && !each {
				ready = nil
			}
			m.Backward(b, pass, ready)
		}
		if err := sharder.Finish(ctx); err != nil {
			return nil, err
		}
		decision.Reduce(sharder.Records())
		adam.StepAsync(sharder.Parts(), decision, 0.5)
		adam.CountStep()
		result.Begin(decision.Result())
		if err := sharder.Wait(ctx, sharder.TakeWork(nil)); err != nil {
			return nil, err
		}
		losses = append(losses, float64(result.Floats()[2])/float64(2*c.Size()))
		sharder.MarkUpdated()
	}
	return losses, nil
}
