package nn

import (
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
)

// TestModelGradients checks whole models: offsets, order, and the gradient of every parameter
// through all layers.
func TestModelGradients(t *testing.T) {
	for _, k := range smallKinds {
		for _, p := range []float64{0, 0.1} {
			t.Run(fmt.Sprintf("%s, dropout %v", k.name, p), func(t *testing.T) {
				e := k.start(t, cpu.New(1), p, 0)
				params := placeRandom(e.device, e.model.Params())
				pass := Pass{Train: true, Weight: 1, Seed: 77, First: 1, Stride: 2}
				mask := masks(e.device, p, pass)
				loss := func() float64 {
					switch m := e.model.(type) {
					case *GPT:
						return gpt64(m, params, e.ids, e.labels, sequences{e.samples, e.tokens}, mask)
					case *Sequential:
						out := sequential64(m, widen(e.x), params, mask)
						if e.targets {
							return squaredError64(out, e.wanted)
						}
						return crossEntropy64(out, e.labels)
					}
					panic("no reference for this model")
				}
				out := e.step(e.every(0, 1), pass)
				checkRelative(t, "loss", out.Loss, loss(), 1e-6)
				if want := e.samples * max(1, e.tokens); out.Count != want || out.Correct != 0 {
					t.Errorf("outcome %+v, want a count of %d", out, want)
				}
				for i, g := range e.grads() {
					checkGradient(t, e.model.Params()[i].Name, g, params[i], loss)
				}
			})
		}
	}
}

// TestWeightScalesGradients checks that the weight of a pass scales gradients only.
func TestWeightScalesGradients(t *testing.T) {
	for _, k := range smallKinds {
		e := k.start(t, cpu.New(1), 0, 0)
		b := e.every(0, 1)
		whole := e.step(b, Pass{Train: true, Weight: 1})
		want := e.grads()
		half := e.step(b, Pass{Train: true, Weight: 0.5})
		if whole != half {
			t.Errorf("%s: outcome %+v with weight 0.5, %+v with 1", k.name, half, whole)
		}
		for i, g := range e.grads() {
			for j := range g {
				g[j] *= 2
			}
			checkClose(t, k.name+" "+e.model.Params()[i].Name, g, want[i], 1e-6)
		}
	}
}
