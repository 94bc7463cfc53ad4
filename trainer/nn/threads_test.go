package nn

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestThreadsDoNotMatter checks that results are bit-identical for any number of threads.
func TestThreadsDoNotMatter(t *testing.T) {
	for _, k := range largeKinds {
		for _, precision := range []device.Precision{device.FP32, device.BF16} {
			var want [][]float32
			var outcome Outcome
			for _, threads := range []int{1, 2, 5} {
				e := k.start(t, cpu.New(threads), 0.1, precision)
				b := e.every(0, 1)
				got := e.step(b, Pass{Train: true, Weight: 1, Seed: 3, Stride: 1})
				evaluated := e.model.Forward(b, Pass{})
				got.Correct = evaluated.Correct
				if threads == 1 {
					outcome, want = got, e.grads()
					continue
				}
				if got != outcome {
					t.Errorf("%s: outcome %+v with %d threads, %+v with one", k.name, got, threads, outcome)
				}
				for i, g := range e.grads() {
					sameBits(t, k.name+" "+e.model.Params()[i].Name, g, want[i])
				}
			}
		}
	}
}

// TestLossDoesNotDependOnBatch checks that a sample's loss does not depend on its batch, so that
// an evaluation with a different number of ranks is bit-identical. Losses are summed in float64.
// The test compares the float32 losses of the rows.
func TestLossDoesNotDependOnBatch(t *testing.T) {
	for _, k := range slices.Concat(smallKinds, largeKinds) {
		e := k.start(t, cpu.New(1), 0.5, device.FP32)
		losses := func() []float32 {
			if m, ok := e.model.(*GPT); ok {
				return get(e.device, m.head.tally.losses)
			}
			return get(e.device, e.model.(*Sequential).tally.losses)
		}
		whole := e.model.Forward(e.every(0, 1), Pass{})
		all := losses()
		each := len(all) / e.samples
		sum := 0.0
		for i := range min(e.samples, 9) {
			got := e.model.Forward(e.batch(i), Pass{})
			sameBits(t, k.name, losses()[:each], all[i*each:(i+1)*each])
			sum += got.Loss
		}
		if e.samples <= 9 {
			checkRelative(t, k.name+": sum of losses", sum, whole.Loss*float64(e.samples), 1e-12)
		}
	}
}
