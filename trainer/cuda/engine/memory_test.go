//go:build cuda

package engine_test

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// TestStepUsesPlannedMemory checks that a training step uses the planned amount of memory within
// 10%.
func TestStepUsesPlannedMemory(t *testing.T) {
	const samples, moments = 8, 2
	o := nn.GPTOptions{Vocabulary: 3000, Context: 128, Layers: 2, Heads: 2, Width: 128}
	sample := plan.Sample{Tokens: o.Context, Outputs: o.Vocabulary, Classes: true}
	for p, name := range []string{device.FP32: "fp32", device.BF16: "bf16"} {
		t.Run(name, func(t *testing.T) {
			precision := device.Precision(p)
			m, err := nn.NewGPT(o)
			if err != nil {
				t.Fatal(err)
			}
			planned := plan.Count(m, sample, samples, precision, true).Memory(ddp.DDP, plan.Elements(float64(moments)), 1, plan.Program{})

			d := open(t, engine.Options{})
			before, free := d.PoolStats().Reserved, d.Available()
			nn.AllocValues(d, m.Params())
			nn.AllocGrads(d, m.Params())
			m.Init(random.New(1), d)
			m.Plan(nn.Plan{Device: d, Batch: samples, Precision: precision, Train: true})
			adam, err := optim.New(d, m.Params(), optim.Options{Kind: optim.KindAdamW, LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
			if err != nil {
				t.Fatal(err)
			}
			pass := nn.Pass{Train: true, Stride: 1, Weight: 1}
			var b nn.Batch
			for range 2 { // the current and the next batch
				b = sample.Batch(d, samples)
			}
			m.Forward(b, pass)
			m.Backward(b, pass, nil)
			adam.Step(m.Params(), 1)

			// Free memory shrinks by more: a driver loads kernels when they are first used, and
			// allocates memory of its own.
			took := float64(d.PoolStats().Reserved - before - d.LazyBytes())
			t.Logf("took %.1f MiB, planned %.1f; the GPU has %.1f MiB less", took/(1<<20), planned.Total()/(1<<20), float64(free-d.Available())/(1<<20))
			// Sizes are rounded up, and slabs are not full.
			if took < 0.9*planned.Total() || took > 1.1*planned.Total() {
				t.Errorf("a step took %.1f MiB, %.1f are planned: %+v", took/(1<<20), planned.Total()/(1<<20), planned)
			}
		})
	}
}

// TestCopiesToPinnedMemory checks that a copy to pinned memory is one transfer, and a copy to
// other memory several. Both copy the tensor as it was at the call, whatever follows.
func TestCopiesToPinnedMemory(t *testing.T) {
	gpusim.Require(t)
	const n = 3<<20 + 5
	d := open(t, engine.Options{})
	pinned, err := d.Pin(n + 20)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(i)
	}
	x := d.Alloc(device.Float32, n)
	for name, c := range map[string]struct {
		to   []float32
		want gpusim.Downloads
	}{
		"pinned":        {pinned[7:][:n], gpusim.Downloads{Number: 1, Bytes: 4 * n, Largest: 4 * n}},
		"beyond it":     {make([]float32, n), gpusim.Downloads{Number: 4, Bytes: 4 * n, Largest: 4 << 20}},
		"nothing of it": {pinned[:0], gpusim.Downloads{}},
	} {
		gpusim.TakeDownloads()
		d.Write(x, want)
		d.Read(c.to, x.Slice(0, len(c.to)))
		d.Zero(x)
		if got := gpusim.TakeDownloads(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		d.Read(want[:0], x.Slice(0, 0))
		if !slices.Equal(c.to, want[:len(c.to)]) {
			t.Errorf("%s: other numbers", name)
		}
	}
}

// TestModulesAreLoadedWhenNeeded checks that a device compiles only the kernels that it needs.
func TestModulesAreLoadedWhenNeeded(t *testing.T) {
	d := open(t, engine.Options{})
	first := d.Modules()
	a := d.Alloc(device.Float32, 8)
	d.Add(a, a, a)
	d.Add(a, a, a)
	if first > 1 || d.Modules() != first+1 {
		t.Errorf("%d modules at first, and %d after an addition", first, d.Modules())
	}
}

// TestBind checks that operations work on a goroutine that has bound the device, and after it.
func TestBind(t *testing.T) {
	d := open(t, engine.Options{})
	a, one := d.Alloc(device.Float32, 1), []float32{1}
	d.Write(a, one)
	for range 2 {
		unbind, err := d.Accelerator().Bind()
		if err != nil {
			t.Fatal(err)
		}
		d.Add(a, a, a)
		unbind()
		d.Add(a, a, a)
	}
	if d.Read(one, a); one[0] != 16 {
		t.Errorf("got %v, want 16", one[0])
	}
}
