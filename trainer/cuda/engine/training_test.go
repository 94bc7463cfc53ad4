//go:build cuda

package engine_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// training is a model with its samples.
type training struct {
	name      string
	model     func() (nn.Model, error)
	optimizer func(device.Device, []*nn.Param) (optim.Optimizer, error)
	samples   int
	inputs    int // of a sample, or
	tokens    int // of a sequence
	classes   int
	captured  bool // steps are captured as graphs
	async     bool // asynchronous steps
	rounded   bool // the optimizer rounds the weights for matmuls
}

var trainings = []training{
	{name: "mlp", samples: 64, inputs: 40, classes: 7,
		model: func() (nn.Model, error) {
			return nn.NewMLP(40, nn.MLPOptions{Hidden: []int{65, 32}, Activation: "relu", Dropout: 0.1}, 7)
		},
		optimizer: func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindSGD, LR: 0.2, Momentum: 0.9, WeightDecay: 0.01, Nesterov: true})
		}},
	{name: "cnn", samples: 16, inputs: 3 * 12 * 11, classes: 5,
		model: func() (nn.Model, error) {
			return nn.NewCNN(3, 12, 11, nn.CNNOptions{Channels: []int{4, 6}, Kernel: 3, Dense: nn.MLPOptions{Hidden: []int{30}, Activation: "tanh"}}, 5)
		},
		optimizer: func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindAdam, LR: 5e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
		}},
	{name: "gpt", samples: 4, tokens: 48, classes: 50,
		model: func() (nn.Model, error) {
			return nn.NewGPT(nn.GPTOptions{Vocabulary: 50, Context: 48, Layers: 2, Heads: 2, Width: 64, Dropout: 0.1})
		},
		optimizer: func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindAdamW, LR: 3e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1})
		}},
}

// losses returns the losses of training steps on a device, all on one batch.
func (k training) losses(t *testing.T, d device.Device, p device.Precision, steps int) []float64 {
	t.Helper()
	m, err := k.model()
	if err != nil {
		t.Fatal(err)
	}
	sharder := ddp.New(ddp.NewCommunicator(collective.SingleRank{}), d, m.Params(), ddp.Options{Rounded: k.rounded})
	m.Init(random.New(1), d)
	m.Plan(nn.Plan{Device: d, Batch: k.samples, Precision: p, Train: true})
	o, err := k.optimizer(d, sharder.Parts())
	if err != nil {
		t.Fatal(err)
	}
	sharder.Start(t.Context())
	if err := sharder.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := random.New(2)
	draw := func(n int) device.Tensor {
		v := make([]int32, n)
		for i := range v {
			v[i] = int32(g.Uint32() % uint32(k.classes))
		}
		to := d.Alloc(device.Int32, n)
		d.WriteInts(to, v)
		return to
	}
	b := nn.Batch{Samples: k.samples, Labels: draw(k.samples * max(1, k.tokens))}
	if k.tokens > 0 {
		b.Tokens = draw(k.samples * k.tokens)
	} else {
		b.X = d.Alloc(device.Float32, k.samples*k.inputs)
		device.Fill(d, b.X, func(x []float32) {
			for i := range x {
				x[i] = float32(g.Uint32()%2000)/1000 - 1
			}
		})
	}
	var losses []float64
	begin, end := func() {}, func() {}
	if k.captured {
		begin, end = d.Accelerator().Begin, d.Accelerator().End
	}
	var decision device.StepDecision
	var readings [2]device.Reading
	if k.async {
		decision = d.NewStepDecision(1)
		readings[0], readings[1] = d.NewReading(), d.NewReading()
	}
	records := newRecords(d)
	read := func(step int) {
		if step >= 0 && k.async {
			losses = append(losses, float64(readings[step%2].Floats()[2]))
			o.CountStep()
		}
	}
	for step := range steps {
		pass := nn.Pass{Train: true, Seed: uint64(step), Stride: 1, Weight: 1, DeferLoss: k.async}
		begin()
		loss := m.Forward(b, pass).Loss
		m.Backward(b, pass, nil)
		o.SetRate(o.Rate() * 0.99)
		if k.async {
			rows, parts := m.Losses()
			decision.AddLoss(records.loss, rows, parts, 1)
			records.reduce(decision, m.Params())
			o.StepAsync(sharder.Parts(), decision, 1)
		} else {
			losses = append(losses, float64(float32(loss))) // as the device rounds it
			o.Step(sharder.Parts(), optim.ClipScale(optim.GradNorm(d, m.Params()), 1))
		}
		end()
		if k.async {
			readings[step%2].Begin(decision.Result())
			read(step - 1)
		}
	}
	read(steps - 1)
	return losses
}

// TestTrainsAsOnTheCPU checks that training on a GPU matches the CPU: the same initial weights,
// the same dropout, and losses that differ only by the order and rounding of sums.
func TestTrainsAsOnTheCPU(t *testing.T) {
	const steps = 25
	for _, k := range trainings {
		for p, most := range map[device.Precision]float64{device.FP32: 1e-4, device.BF16: 1e-2} {
			t.Run(fmt.Sprintf("%s precision %d", k.name, p), func(t *testing.T) {
				want, got := k.losses(t, cpu.New(1), p, steps), k.losses(t, open(t, engine.Options{}), p, steps)
				worst := 0.0
				for i := range want {
					worst = max(worst, math.Abs(got[i]-want[i])/math.Abs(want[i]))
				}
				if !(worst <= most) {
					t.Errorf("losses differ by %.2g:\n%v\n%v", worst, got, want)
				}
				if !(got[steps-1] < 0.9*got[0]) {
					t.Errorf("nothing was learnt: %v", got)
				}
			})
		}
	}
}

// TestRoundedWeightsTrainTheSame checks that weights that the optimizer rounds give the same bits as
// weights that each matmul rounds. All weights of the model are aligned.
func TestRoundedWeightsTrainTheSame(t *testing.T) {
	k := trainings[2]
	k.samples, k.tokens = 3, 16
	k.model = func() (nn.Model, error) {
		return nn.NewGPT(nn.GPTOptions{Vocabulary: 56, Context: 16, Layers: 2, Heads: 2, Width: 128})
	}
	want := k.losses(t, open(t, engine.Options{}), device.BF16, 4)
	k.rounded = true
	if got := k.losses(t, open(t, engine.Options{}), device.BF16, 4); !slices.Equal(got, want) {
		t.Errorf("losses %v, want %v", got, want)
	}
}

// TestTwoSteps checks that two steps of each model reduce the loss. It is for AddressSanitizer,
// where more steps take too long.
func TestTwoSteps(t *testing.T) {
	for _, k := range trainings {
		for _, p := range []device.Precision{device.FP32, device.BF16} {
			t.Run(fmt.Sprintf("%s precision %d", k.name, p), func(t *testing.T) {
				if got := k.losses(t, open(t, engine.Options{}), p, 2); !(got[1] < got[0]) {
					t.Errorf("losses %v", got)
				}
			})
		}
	}
}
