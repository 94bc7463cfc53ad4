//go:build cuda

package engine_test

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// TestLaunchesArePredicted checks that a step of a GPT in bf16 launches the operations that
// plan.Recorder lists, in this order.
func TestLaunchesArePredicted(t *testing.T) {
	adamw := jobs.Optimizer{Kind: jobs.OptimizerAdamW, LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, ClipNorm: 1}
	muon := adamw
	muon.Kind, muon.Momentum = jobs.OptimizerMuon, 0.95
	for name, c := range map[string]struct {
		model     nn.GPTOptions
		train     jobs.Train
		attention engine.Attention
	}{
		"adamw":   {nn.GPTOptions{Vocabulary: 56, Context: 40, Layers: 2, Heads: 2, Width: 128}, jobs.Train{Optimizer: adamw}, engine.WGMMA},
		"dropout": {nn.GPTOptions{Vocabulary: 50, Context: 40, Layers: 1, Heads: 1, Width: 72, Dropout: 0.1}, jobs.Train{Optimizer: adamw, Accumulate: 2, Bucket: 4096}, engine.MMA},
		"muon":    {nn.GPTOptions{Vocabulary: 64, Context: 8, Layers: 1, Heads: 2, Width: 32}, jobs.Train{Optimizer: muon}, engine.MMA},
	} {
		t.Run(name, func(t *testing.T) {
			c.train.Precision = jobs.PrecisionBF16
			const samples = 2
			sample := plan.Sample{Tokens: c.model.Context, Outputs: c.model.Vocabulary, Classes: true}
			run := func(d device.Device, steps int, ready func()) {
				m, err := nn.NewGPT(c.model)
				if err != nil {
					t.Fatal(err)
				}
				step, err := trainer.PrepareStep(d, m, sample.Batch(d, samples), &c.train)
				if err != nil {
					t.Fatal(err)
				}
				ready()
				for range steps {
					if err := step(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			gpu, recorder := open(t, engine.Options{Attention: c.attention}), plan.NewRecorder(c.attention == engine.WGMMA)
			run(gpu, 2, func() {}) // scratch memory grows in the first step, which divides it into several parts
			run(recorder, 1, func() { recorder.Launches = nil })
			var want []string
			for _, l := range recorder.Launches {
				want = append(want, l.Kernel)
			}
			if got := gpu.LastPart(); !slices.Equal(got, want) {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				t.Errorf("%d launches, want %d; from launch %d on:\n%q\nwant\n%q", len(got), len(want), at, got[at:], want[at:])
			}
		})
	}
}
