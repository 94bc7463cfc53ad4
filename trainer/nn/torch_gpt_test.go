package nn

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// gptRun is a model and PyTorch's results for it.
type gptRun struct {
	Config          GPTOptions
	Params          []golden // initial values
	Tokens, Targets golden
	Loss            float64
	LossOfFirst5    float64 `json:"loss_of_first_5"`
	Grads           []golden
	Batch, Steps    int
	adamWOptions
	Losses, Norms []float64
	Trained       []golden
}

type gptGolden struct {
	Seed           uint64
	Tiny, Training gptRun
}

// normalDraw is the tolerance for normal random values: the rounding of a logarithm.
const normalDraw = 2e-6

// startGPT returns a run's model with initial weights, which it checks.
func startGPT(t *testing.T, d device.Device, r gptRun, seed uint64, batch int, p device.Precision) *GPT {
	t.Helper()
	m, err := NewGPT(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	AllocValues(d, m.Params())
	AllocGrads(d, m.Params())
	m.Init(random.New(seed), d)
	m.Plan(Plan{Device: d, Batch: batch, Precision: p, Train: true})
	checkParams(t, d, m.Params(), dataOf, r.Params, normalDraw)
	return m
}

// gptBatch returns the batch of a step by the rule in testdata/torch_gpt.py.
func gptBatch(d device.Device, step, rows, length, vocabulary int) Batch {
	var tokens, labels []int32
	for row := range rows {
		for i := range length {
			token := func(i int) int32 { return int32((3*i*i + 5*i*(row+1) + 7*(step%4) + 11*row) % vocabulary) }
			tokens, labels = append(tokens, token(i)), append(labels, token(i+1))
		}
	}
	return Batch{Samples: rows, Tokens: putInts(d, tokens), Labels: putInts(d, labels)}
}

// TestGPTEqualsTorch compares the initial weights, the loss, and the gradients of a GPT with
// PyTorch's.
func TestGPTEqualsTorch(t *testing.T) {
	var file gptGolden
	readGolden(t, "gpt_golden.json", &file)
	r, d := file.Tiny, cpu.New(1)
	m := startGPT(t, d, r, file.Seed, 3, device.FP32)
	for i, p := range m.Params() {
		for j, v := range get(d, p.Data) {
			checkRelative(t, p.Name, float64(v), float64(r.Params[i].Values[j]), normalDraw)
		}
	}
	b := Batch{Samples: 3, Tokens: putInts(d, r.Tokens.ints()), Labels: putInts(d, r.Targets.ints())}
	pass := Pass{Train: true, Weight: 1}
	checkRelative(t, "loss", m.Forward(b, pass).Loss, r.Loss, 1e-6)
	m.Backward(b, pass, nil)
	checkParams(t, d, m.Params(), gradOf, r.Grads, 5e-6)

	var tokens, labels []int32
	for row := range 3 {
		tokens = append(tokens, r.Tokens.ints()[row*8:][:5]...)
		labels = append(labels, r.Targets.ints()[row*8:][:5]...)
	}
	less := Batch{Samples: 3, Tokens: putInts(d, tokens), Labels: putInts(d, labels)}
	checkRelative(t, "loss of 5 tokens", m.Forward(less, Pass{}).Loss, r.LossOfFirst5, 1e-6)
}

// trainGPT returns the losses and the gradient norms of a run.
func trainGPT(m *GPT, d device.Device, r gptRun) (losses, norms []float64) {
	u := newUpdates(d, m.Params())
	pass := Pass{Train: true, Weight: 1}
	for step := range r.Steps {
		b := gptBatch(d, step, r.Batch, r.Config.Context, r.Config.Vocabulary)
		losses = append(losses, m.Forward(b, pass).Loss)
		m.Backward(b, pass, nil)
		norms = append(norms, u.adamW(r.adamWOptions))
	}
	return losses, norms
}

// TestGPTTrainingFollowsTorch compares the losses, the gradient norms, and the final weights of a
// training run with PyTorch's.
func TestGPTTrainingFollowsTorch(t *testing.T) {
	var file gptGolden
	readGolden(t, "gpt_golden.json", &file)
	r, d := file.Training, cpu.New(1)
	m := startGPT(t, d, r, file.Seed, r.Batch, device.FP32)
	losses, norms := trainGPT(m, d, r)
	checkLosses(t, "losses", losses, r.Losses, 1e-6, 5e-5)
	checkLosses(t, "norms", norms, r.Norms, 1e-5, 1e-4)
	checkParams(t, d, m.Params(), dataOf, r.Trained, 1e-3)
}
