package measure

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

func options() Options {
	return Options{
		Model: func() (nn.Model, error) {
			return nn.NewMLP(784, nn.MLPOptions{Hidden: []int{512, 512}, Activation: "relu"}, 10)
		},
		Sample: plan.Sample{Inputs: 784, Outputs: 10, Classes: true}, Batch: 128, Threads: 1,
		Element: plan.Elements(1),
		Update:  update,
	}
}

func update(d device.Device, params []*nn.Param) (func(), error) {
	rule, err := optim.New(d, params, optim.Options{Kind: optim.KindSGD, LR: .01, Momentum: .9})
	return func() {
		optim.GradNorm(d, params)
		rule.Step(params, 1)
	}, err
}

// TestPredictionBesideMeasurement logs the measured and the predicted time of steps on 1 to 4 ranks
// of this machine. The machine may be busy, so the test only checks that the prediction for one
// rank is the sum of its measured parts.
func TestPredictionBesideMeasurement(t *testing.T) {
	o := options()
	speed, err := Compute(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	link, err := Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]float64{"FLOP/s": speed.FLOPS, "bytes/s of updates": speed.Bandwidth, "s of latency": link.Latency, "bytes/s of messages": link.Bandwidth} {
		if !(v > 0) || math.IsInf(v, 0) {
			t.Errorf("%v %s were measured", v, name)
		}
	}
	t.Logf("%.1f GFLOP/s, updates of %.1f GB/s, messages of %.1f us and %.2f GB/s", speed.FLOPS/1e9, speed.Bandwidth/1e9, link.Latency*1e6, link.Bandwidth/1e9)
	m, err := o.Model()
	if err != nil {
		t.Fatal(err)
	}
	work := plan.Count(m, o.Sample, o.Batch, o.Precision, false)
	machine := plan.Machine{
		Fabric: plan.Fabric{PerNode: 4, Local: link}, FLOPS: speed.FLOPS, Bandwidth: speed.Bandwidth,
		Threads: 1, Cores: runtime.GOMAXPROCS(0), CPUCopies: true,
	}
	for _, ranks := range []int{1, 2, 4} {
		want := plan.Predict(work, plan.Training{Element: o.Element, Accumulate: 1}, machine, ranks).Seconds
		got := steps(t, o, ranks)
		t.Logf("%d ranks: %.2f ms, predicted %.2f ms", ranks, got*1e3, want*1e3)
		if parts := work.FLOP()/speed.FLOPS + float64(work.NumParams())*o.Element.Update/speed.Bandwidth; ranks == 1 && math.Abs(want/parts-1) > 1e-9 {
			t.Errorf("a step of one rank takes %.3g ms, its parts %.3g ms", want*1e3, parts*1e3)
		}
	}
}

// steps returns the minimum time of a step with this number of ranks, run like the trainer's.
func steps(t *testing.T, o Options, ranks int) float64 {
	t.Helper()
	comms := []collective.Communicator{collective.SingleRank{}}
	if ranks > 1 {
		var err error
		if comms, err = connect(t.Context(), ranks); err != nil {
			t.Fatal(err)
		}
		defer closeAll(comms)
	}
	best := math.Inf(1)
	err := each(comms, func(c collective.Communicator) error {
		m, err := o.Model()
		if err != nil {
			return err
		}
		d := cpu.New(o.Threads)
		sharder := ddp.New(ddp.NewCommunicator(c), d, m.Params(), ddp.Options{})
		m.Plan(nn.Plan{Device: d, Batch: o.Batch, Train: true})
		m.Init(random.New(1), d)
		move, err := o.Update(d, m.Params())
		if err != nil {
			return err
		}
		batch, pass := o.Sample.Batch(d, o.Batch), nn.Pass{Train: true, Weight: 1, Stride: 1}
		for i := range 30 {
			begin := time.Now()
			sharder.Start(t.Context())
			m.Forward(batch, pass)
			m.Backward(batch, pass, sharder.Ready)
			if err := sharder.Finish(t.Context()); err != nil {
				return err
			}
			move()
			if c.Rank() == 0 && i > 0 {
				best = min(best, time.Since(begin).Seconds())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return best
}

// TestComputeFails checks the errors for a model that exceeds the memory and for a canceled
// context.
func TestComputeFails(t *testing.T) {
	o := options()
	o.Memory = 1 << 20
	_, err := Compute(t.Context(), o)
	var hinter interface{ Hint() string }
	if !errors.As(err, &hinter) {
		t.Errorf("a model that does not fit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compute(ctx, options()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
