package bench

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestStepTakesTheNorm checks that a step computes the norm with and without clipping, as the
// trainer does to check that it is finite.
func TestStepTakesTheNorm(t *testing.T) {
	for _, clip := range []float64{0, 1} {
		training, err := newSingleRank(cpu.New(1), perceptron{in: 3, hidden: []int{4}, out: 2, batch: 5}, device.FP32)
		if err != nil {
			t.Fatal(err)
		}
		training.clip = clip
		if _, err := training.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if updated, norm := training.decision.Result().Floats()[0], training.decision.Result().Floats()[1]; updated != 1 || !(norm > 0) {
			t.Errorf("clipped to %v: updated %v with a norm of %v, want 1 and a norm above 0", clip, updated, norm)
		}
	}
}
