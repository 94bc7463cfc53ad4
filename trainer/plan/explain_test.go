package plan

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// TestRecorderCountsLikeCounter checks that a Recorder counts the memory of a Counter, and that its
// matmuls have the FLOPs that the Counter counts without attention.
func TestRecorderCountsLikeCounter(t *testing.T) {
	o := nn.GPTOptions{Vocabulary: 96, Context: 24, Layers: 2, Heads: 2, Width: 64, Dropout: 0.1}
	s := Sample{Tokens: 24, Outputs: 96, Classes: true}
	const batch = 3
	want := Count(gpt(t, o), s, batch, device.BF16, true)

	m, r := gpt(t, o), NewRecorder(true)
	nn.AllocValues(r, m.Params())
	nn.AllocGrads(r, m.Params())
	before := r.Bytes
	m.Plan(nn.Plan{Device: r, Batch: batch, Precision: device.BF16, Train: true})
	if got := r.Bytes - before; got != want.Activations {
		t.Errorf("%d bytes of activations, want %d", got, want.Activations)
	}
	b, pass := s.Batch(r, batch), nn.Pass{Train: true, Weight: 1, Stride: 1, DeferLoss: true}
	m.Forward(b, pass)
	m.Backward(b, pass, nil)
	classes := map[Class]float64{}
	for _, l := range r.Launches {
		classes[l.Class] += l.FLOP
	}
	// Two matmuls forward and four backward of all positions; and nine of the unmasked ones.
	all := 2 * float64(batch*o.Layers*o.Width*s.Tokens*s.Tokens)
	unmasked := all * float64(s.Tokens+1) / float64(2*s.Tokens)
	if got, want := classes[Matmul], want.FLOP()-6*all; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("%v FLOP of matmuls, want %v", got, want)
	}
	if got, want := classes[Attention], 9*unmasked; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("%v FLOP of attention, want %v", got, want)
	}
}

// TestExplain checks times, sums, and the order of a speed model.
func TestExplain(t *testing.T) {
	r := Rates{Matmul: 100, Attention: 50, Memory: 10, Block: 1, Launch: 0.5}
	m := Explain([]Launch{
		{"sort", OneBlock, 0, 2},
		{"short", Matmul, 100, 1},
		{"long", Matmul, 100, 30}, // bound by memory
		{"attention", Attention, 100, 1},
		{"short", Matmul, 200, 1},
		{"copy", Streaming, 0, 20},
	}, r)
	var names []string
	for _, k := range m.Kernels {
		names = append(names, k.Kernel)
	}
	want := []Launches{
		{"short", Matmul, 2, 300, 2, 4}, {"long", Matmul, 1, 100, 30, 3.5}, {"attention", Attention, 1, 100, 1, 2.5},
		{"copy", Streaming, 1, 0, 20, 2.5}, {"sort", OneBlock, 1, 0, 2, 2.5},
	}
	for i, k := range m.Kernels {
		if len(m.Kernels) != len(want) || k != want[i] {
			t.Fatalf("got %+v in the order %v, want %+v", m.Kernels, names, want)
		}
	}
	if got := m.Classes[0]; got != (Launches{"", Matmul, 3, 400, 32, 7.5}) {
		t.Errorf("matmuls %+v", got)
	}
	if m.Step != (Launches{"", "", 6, 500, 55, 15}) {
		t.Errorf("step %+v", m.Step)
	}
}

// TestRates checks that wgmma changes the rate of attention on Hopper only.
func TestRates(t *testing.T) {
	for name, faster := range map[string]bool{"H100": true, "H200": true, "GH200": true, "A100": false, "A5000": false} {
		g, _ := FindGPU(name)
		slow, fast := g.Rates(false), g.Rates(true)
		if (fast.Attention > slow.Attention) != faster || fast.Matmul != slow.Matmul || !(slow.Matmul > 0 && slow.Memory > 0) {
			t.Errorf("%s: %+v with mma, %+v with wgmma", name, slow, fast)
		}
	}
}
