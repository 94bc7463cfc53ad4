package nn

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestDropoutOfRanks checks that the gradients of samples on several ranks sum to the gradients of
// one rank with all samples. The dropout mask depends only on the index of a sample.
func TestDropoutOfRanks(t *testing.T) {
	for _, k := range slices.Concat(smallKinds[1:], largeKinds) {
		t.Run(k.name, func(t *testing.T) {
			e := k.start(t, cpu.New(2), 0.3, device.FP32)
			// Samples 5, 8, 11... of a step, of which other ranks have the rest.
			const first, stride = 5, 3
			whole := e.step(e.every(0, 1), Pass{Train: true, Weight: 1, Seed: 8, First: first, Stride: stride})
			want := e.grads()
			loss := 0.0
			const ranks = 2
			for rank := range ranks {
				b := e.every(rank, ranks)
				share := float64(b.Samples) / float64(e.samples)
				pass := Pass{Train: true, Weight: float32(share), Seed: 8, First: first + rank*stride, Stride: ranks * stride, Accumulate: rank > 0}
				loss += e.step(b, pass).Loss * share
			}
			checkRelative(t, "loss", loss, whole.Loss, 1e-6)
			for i, g := range e.grads() {
				checkClose(t, e.model.Params()[i].Name, g, want[i], 1e-5)
			}
		})
	}
}

// TestDropoutDependsOnSeedAndSample checks that only a different seed or sample index gives a
// different mask, and that dropout is off outside of training.
func TestDropoutDependsOnSeedAndSample(t *testing.T) {
	for _, k := range smallKinds[1:] {
		e, without := k.start(t, cpu.New(1), 0.5, device.FP32), k.start(t, cpu.New(1), 0, device.FP32)
		b := e.every(0, 1)
		at := Pass{Train: true, Weight: 1, Seed: 8, First: 1, Stride: 1}
		other, next := at, at
		other.Seed++
		next.First++
		want := e.step(b, at).Loss
		grads := e.grads()
		for name, pass := range map[string]Pass{"seed": other, "sample": next} {
			if got := e.step(b, pass).Loss; got == want {
				t.Errorf("%s: loss %v with another %s too", k.name, got, name)
			}
		}
		if got := e.step(b, at).Loss; got != want {
			t.Errorf("%s: loss %v and again %v", k.name, want, got)
		}
		for i, g := range e.grads() {
			sameBits(t, k.name+" "+e.model.Params()[i].Name, g, grads[i])
		}
		if got, want := e.model.Forward(b, Pass{Seed: 8}), without.model.Forward(b, Pass{}); got != want {
			t.Errorf("%s: outside of training %+v, without dropout %+v", k.name, got, want)
		}
	}
}

// TestDropoutSitesDiffer checks that each dropout site of a model has a different mask.
func TestDropoutSitesDiffer(t *testing.T) {
	gpt, err := NewGPT(GPTOptions{Vocabulary: 3, Context: 2, Layers: 3, Heads: 1, Width: 2, Dropout: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	mlp, err := NewMLP(2, MLPOptions{[]int{3, 3, 3}, "relu", 0.1}, 2)
	if err != nil {
		t.Fatal(err)
	}
	inGPT, inMLP := []uint64{0}, []uint64(nil)
	for _, b := range gpt.blocks {
		inGPT = append(inGPT, b.attn.site, b.site, b.site+1)
	}
	for _, l := range mlp.layers {
		if l, ok := l.(*dropout); ok {
			inMLP = append(inMLP, l.site)
		}
	}
	if len(inGPT) != 10 || len(inMLP) != 3 {
		t.Errorf("dropout at %v and %v, want 10 and 3 places", inGPT, inMLP)
	}
	for _, sites := range [][]uint64{inGPT, inMLP} {
		of := map[uint64]uint64{}
		for _, site := range sites {
			key := Pass{Seed: 5}.dropout(0.1, site, 1).Key
			if other, ok := of[key]; ok {
				t.Errorf("sites %d and %d have one key", other, site)
			}
			of[key] = site
		}
	}
}
