package nn_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// reference is what testdata/torch_reference.py prints.
type reference struct {
	Model, Activation, Data string
	Hidden                  []int
	Samples, Inputs         int
	Batch, Steps            int
	WorldSize               int `json:"world_size"`
	Seed                    int64
	LR, Momentum            float64
	WeightDecay             float64 `json:"weight_decay"`
	Nesterov                bool
	InitSHA256              string `json:"init_sha256"`
	Losses                  []float64
	EvalLoss                float64 `json:"eval_loss"`
	EvalCorrect             int     `json:"eval_correct"`
}

// run is one training run in this process, ranks taken one after the other.
type run struct {
	reference
	train, eval data.Dataset
	model       *nn.Model
	opt         *optim.SGD

	x, dout nn.Matrix
	labels  []int32
	targets []float32
	sum     [][]float32 // of gradients over ranks
}

func newRun(t testing.TB, r reference) *run {
	t.Helper()
	o := data.Options{Kind: data.KindSynthetic, Samples: r.Samples, Inputs: r.Inputs, Outputs: 1, Seed: r.Seed}
	if r.Data == "builtin" {
		o = data.Options{Kind: data.KindIDX, Path: "builtin:fashion-mnist"}
	}
	train, eval, err := data.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var model *nn.Model
	if r.Model == "linear" {
		model, err = nn.NewLinear(train.Inputs(), train.Outputs())
	} else {
		model, err = nn.NewMLP(train.Inputs(), r.Hidden, train.Outputs(), r.Activation)
	}
	if err != nil {
		t.Fatal(err)
	}
	model.Init(random.New(uint64(r.Seed)))
	model.Plan(r.Batch)
	opt, err := optim.NewSGD(model.Params(), r.LR, r.Momentum, r.WeightDecay, r.Nesterov)
	if err != nil {
		t.Fatal(err)
	}
	s := &run{reference: r, train: train, eval: eval, model: model, opt: opt}
	s.x.Data = make([]float32, r.Batch*train.Inputs())
	s.dout.Data = make([]float32, r.Batch*train.Outputs())
	s.labels, s.targets = make([]int32, r.Batch), make([]float32, r.Batch*train.Outputs())
	for _, p := range model.Params() {
		s.sum = append(s.sum, make([]float32, len(p.Grad)))
	}
	return s
}

// rank computes the loss and the gradients of one rank's batch.
func (s *run) rank(indices []int) float64 {
	n := len(indices)
	s.train.Read(indices, s.x.Data, s.labels, s.targets)
	x := nn.Matrix{Rows: n, Cols: s.train.Inputs(), Data: s.x.Data[:n*s.train.Inputs()]}
	dout := nn.Matrix{Rows: n, Cols: s.train.Outputs(), Data: s.dout.Data[:n*s.train.Outputs()]}
	out := s.model.Forward(x)
	var loss float64
	if s.train.Classes() {
		loss = nn.CrossEntropy(out, s.labels[:n], dout)
	} else {
		loss = nn.MSE(out, s.targets[:len(dout.Data)], dout)
	}
	s.model.Backward(dout, nil)
	return loss
}

// step takes the ranks' batches, averages their gradients and updates.
func (s *run) step(batches [][]int) float64 {
	if len(batches) == 1 {
		loss := s.rank(batches[0])
		s.opt.Step(s.model.Params())
		return loss
	}
	for _, g := range s.sum {
		clear(g)
	}
	total := 0.0
	for _, indices := range batches {
		total += s.rank(indices)
		for i, p := range s.model.Params() {
			for k, g := range p.Grad {
				s.sum[i][k] += g / float32(len(batches))
			}
		}
	}
	for i, p := range s.model.Params() {
		copy(p.Grad, s.sum[i])
	}
	s.opt.Step(s.model.Params())
	return total / float64(len(batches))
}

// batches calls step with the ranks' batches of every step until it is false.
func (s *run) batches(step func([][]int) bool) {
	for epoch := 0; ; epoch++ {
		orders := make([][]int, s.WorldSize)
		for rank := range orders {
			sampler := data.Sampler{N: s.train.Len(), Replicas: s.WorldSize, Rank: rank, Shuffle: true, Seed: s.Seed}
			orders[rank] = sampler.Epoch(epoch)
		}
		for at := 0; at < len(orders[0]); at += s.Batch {
			now := make([][]int, s.WorldSize)
			for rank, o := range orders {
				now[rank] = o[at:min(at+s.Batch, len(o))]
			}
			if !step(now) {
				return
			}
		}
	}
}

// evaluate returns the mean loss and the number of correct held-out samples.
func (s *run) evaluate() (loss float64, correct int) {
	n := s.eval.Len()
	for at := 0; at < n; at += s.Batch {
		var indices []int
		for i := at; i < min(at+s.Batch, n); i++ {
			indices = append(indices, i)
		}
		s.eval.Read(indices, s.x.Data, s.labels, s.targets)
		x := nn.Matrix{Rows: len(indices), Cols: s.eval.Inputs(), Data: s.x.Data[:len(indices)*s.eval.Inputs()]}
		out := s.model.Forward(x)
		loss += nn.CrossEntropy(out, s.labels[:len(indices)], nn.Matrix{}) * float64(len(indices))
		correct += nn.Correct(out, s.labels[:len(indices)])
	}
	return loss / float64(n), correct
}

func digest(t *testing.T, params []*nn.Param) string {
	t.Helper()
	h := sha256.New()
	for _, p := range params {
		if err := binary.Write(h, binary.LittleEndian, p.Data); err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A run here must have PyTorch's initial weights bit for bit, and its losses to
// 1e-5: with other kernels, sums are rounded in another order.
func TestTrainingFollowsTorch(t *testing.T) {
	for _, file := range []string{"mlp_golden", "mlp_tanh_golden", "linear_golden"} {
		t.Run(file, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/" + file + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var want reference
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			s := newRun(t, want)
			if got := digest(t, s.model.Params()); got != want.InitSHA256 {
				t.Errorf("initial weights differ: digest %s, want %s", got, want.InitSHA256)
			}
			worst, at := 0.0, 0
			step := 0
			s.batches(func(batches [][]int) bool {
				got := s.step(batches)
				if diff := math.Abs(got-want.Losses[step]) / math.Abs(want.Losses[step]); !(diff <= worst) {
					worst, at = diff, step
				}
				step++
				return step < want.Steps
			})
			if len(want.Losses) != want.Steps || want.Steps < 50 {
				t.Fatalf("%d losses of %d steps", len(want.Losses), want.Steps)
			}
			if !(worst <= 1e-5) {
				t.Errorf("loss of step %d differs by %.2g", at, worst)
			}
			t.Logf("largest relative difference of a loss: %.2g at step %d", worst, at)
			if s.eval == nil {
				return
			}
			loss, correct := s.evaluate()
			if diff := math.Abs(loss-want.EvalLoss) / want.EvalLoss; diff > 1e-5 || correct != want.EvalCorrect {
				t.Errorf("held out: loss %v, %d correct; want %v, %d", loss, correct, want.EvalLoss, want.EvalCorrect)
			}
		})
	}
}

// BenchmarkStep is a whole step on Fashion-MNIST: reading the batch, forward,
// loss, backward, update.
func BenchmarkStep(b *testing.B) {
	for _, batch := range []int{32, 128} {
		b.Run(map[int]string{32: "784-128-10/batch32", 128: "784-128-10/batch128"}[batch], func(b *testing.B) {
			s := newRun(b, reference{Model: "mlp", Hidden: []int{128}, Activation: nn.ReLU, Data: "builtin", Batch: batch, WorldSize: 1, LR: 0.05, Momentum: 0.9})
			b.ResetTimer()
			left := b.N
			s.batches(func(batches [][]int) bool {
				s.step(batches)
				left--
				return left > 0
			})
			b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
