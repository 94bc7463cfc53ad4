package nn

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestAccumulatedGradients checks that the accumulated gradients of several batches equal the
// gradients of one batch with all samples, whatever their memory contained before.
func TestAccumulatedGradients(t *testing.T) {
	for _, k := range slices.Concat(smallKinds, largeKinds) {
		t.Run(k.name, func(t *testing.T) {
			e := k.start(t, cpu.New(2), 0, device.FP32)
			whole := e.step(e.every(0, 1), Pass{Train: true, Weight: 1})
			want := e.grads()
			parts := 1
			for _, n := range []int{2, 3, 4, 5} {
				if e.samples%n == 0 {
					parts = n
				}
			}
			loss := 0.0
			for i := range parts {
				pass := Pass{Train: true, Weight: 1 / float32(parts), Accumulate: i > 0}
				loss += e.step(e.every(i, parts), pass).Loss / float64(parts)
			}
			checkRelative(t, "loss", loss, whole.Loss, 1e-6)
			for i, g := range e.grads() {
				checkClose(t, e.model.Params()[i].Name, g, want[i], 1e-5)
			}
		})
	}
}

// TestBackwardReportsReadyGradients checks that parameter i is final when Backward calls ready(i),
// from the last parameter to the first. The reduction across ranks may change it from then on.
func TestBackwardReportsReadyGradients(t *testing.T) {
	for _, k := range smallKinds {
		for _, accumulate := range []bool{false, true} {
			e := k.start(t, cpu.New(1), 0.1, device.FP32)
			pass, b := Pass{Train: true, Weight: 1, Accumulate: accumulate}, e.every(0, 1)
			params := e.model.Params()
			begin := func() {
				for i, p := range params {
					e.device.Write(p.Grad, fill(p.Len(), uint64(i)))
				}
			}
			begin()
			e.step(b, pass)
			want := e.grads()
			begin()
			e.model.Forward(b, pass)
			var order []int
			e.model.Backward(b, pass, func(i int) {
				order = append([]int{i}, order...)
				sameBits(t, k.name+" "+params[i].Name, get(e.device, params[i].Grad), want[i])
				// The reduction across ranks may change it now.
				e.device.Zero(params[i].Grad)
			})
			for i, p := range params {
				sameBits(t, k.name+" "+p.Name+" afterwards", get(e.device, p.Grad), make([]float32, p.Len()))
				if order[i] != i || len(order) != len(params) {
					t.Fatalf("%s: ready from the last to the first %v", k.name, order)
				}
			}
		}
	}
}

// TestParamsInCallerBuffers checks that the owner of parameters may move them between steps.
func TestParamsInCallerBuffers(t *testing.T) {
	for _, k := range smallKinds {
		plain, moved := k.start(t, cpu.New(1), 0, device.FP32), k.start(t, cpu.New(1), 0, device.FP32)
		b, pass := plain.every(0, 1), Pass{Train: true, Weight: 1}
		plain.step(b, pass)
		moved.step(b, pass)
		d, n := moved.device, 0
		for _, p := range moved.model.Params() {
			n += p.Len()
		}
		values, grads := d.Alloc(device.Float32, n), d.Alloc(device.Float32, n)
		at := 0
		for _, p := range moved.model.Params() {
			to := values.Slice(at, at+p.Len())
			d.Copy(to, p.Data)
			d.Write(p.Data, fill(p.Len(), 9)) // must no longer be used
			p.Data, p.Grad = to, grads.Slice(at, at+p.Len())
			at += p.Len()
		}
		if got, want := moved.step(b, pass), plain.step(b, pass); got != want {
			t.Errorf("%s: outcome %+v, want %+v", k.name, got, want)
		}
		sameBits(t, k.name, get(d, grads), slices.Concat(plain.grads()...))
	}
}
