package nn

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// reference is the output of testdata/torch_reference.py.
type reference struct {
	Model, Activation, Data string
	Hidden                  []int
	Samples, Inputs         int
	Batch, Steps            int
	WorldSize               int `json:"world_size"`
	Seed                    int64
	LR, Momentum            float32
	WeightDecay             float32 `json:"weight_decay"`
	Nesterov                bool
	InitSHA256              string `json:"init_sha256"`
	Losses                  []float64
	EvalLoss                float64 `json:"eval_loss"`
	EvalCorrect             int     `json:"eval_correct"`
}

// run is a training run in this process that processes its ranks one after the other.
type run struct {
	reference
	device      device.Device
	train, eval data.Dataset
	model       *Sequential
	updates     *updates
}

func newRun(t *testing.T, r reference) *run {
	t.Helper()
	o := data.Options{Kind: data.KindSynthetic, Samples: r.Samples, Inputs: r.Inputs, Outputs: 1, Seed: r.Seed}
	if r.Data == "builtin" {
		o = data.Options{Kind: data.KindIDX, Path: "builtin:fashion-mnist"}
	}
	train, eval, err := data.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var model *Sequential
	if r.Model == "linear" {
		model, err = NewLinear(train.Inputs(), train.Outputs())
	} else {
		model, err = NewMLP(train.Inputs(), MLPOptions{Hidden: r.Hidden, Activation: r.Activation}, train.Outputs())
	}
	if err != nil {
		t.Fatal(err)
	}
	d := cpu.New(2)
	AllocValues(d, model.Params())
	AllocGrads(d, model.Params())
	model.Init(random.New(uint64(r.Seed)), d)
	model.Plan(Plan{Device: d, Batch: r.Batch, Train: true})
	return &run{r, d, train, eval, model, newUpdates(d, model.Params())}
}

// read returns samples of a dataset as a batch.
func (s *run) read(from data.Dataset, indices []int) Batch {
	n := len(indices)
	v := data.NewBatch(from, n)
	from.Read(indices, v)
	b := Batch{Samples: n, X: put(s.device, v.X)}
	if from.Classes() {
		b.Labels = putInts(s.device, v.Labels)
	} else {
		b.Targets = put(s.device, v.Targets)
	}
	return b
}

// step processes the ranks' batches, averages their gradients, and updates the parameters.
func (s *run) step(batches [][]int) (loss float64) {
	for rank, indices := range batches {
		b, pass := s.read(s.train, indices), Pass{Train: true, Weight: 1 / float32(len(batches)), Accumulate: rank > 0}
		loss += s.model.Forward(b, pass).Loss
		s.model.Backward(b, pass, nil)
	}
	s.updates.sgd(device.Factors{Rate: -s.LR, Beta1: s.Momentum, Decay: s.WeightDecay, Nesterov: s.Nesterov})
	return loss / float64(len(batches))
}

// losses runs all steps and returns their losses.
func (s *run) losses() (losses []float64) {
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
			losses = append(losses, s.step(now))
			if len(losses) == s.Steps {
				return losses
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
		out := s.model.Forward(s.read(s.eval, indices), Pass{})
		loss += out.Loss * float64(out.Count)
		correct += out.Correct
	}
	return loss / float64(n), correct
}

func (s *run) digest(t *testing.T) string {
	t.Helper()
	h := sha256.New()
	for _, p := range s.model.Params() {
		if err := binary.Write(h, binary.LittleEndian, get(s.device, p.Data)); err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestTrainingFollowsTorch checks that a run has PyTorch's initial weights, bit for bit, and its
// losses up to the order of sums.
func TestTrainingFollowsTorch(t *testing.T) {
	for _, file := range []string{"mlp_golden", "mlp_tanh_golden", "linear_golden"} {
		t.Run(file, func(t *testing.T) {
			var want reference
			readGolden(t, file+".json", &want)
			s := newRun(t, want)
			if got := s.digest(t); got != want.InitSHA256 {
				t.Errorf("initial weights differ: digest %s, want %s", got, want.InitSHA256)
			}
			checkLosses(t, "losses", s.losses(), want.Losses, 1e-6, 1e-5)
			if s.eval == nil {
				return
			}
			loss, correct := s.evaluate()
			checkRelative(t, "held-out loss", loss, want.EvalLoss, 1e-5)
			if correct != want.EvalCorrect {
				t.Errorf("%d correct, want %d", correct, want.EvalCorrect)
			}
		})
	}
}
