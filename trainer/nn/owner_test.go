package nn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// strictOwner provides memory for values until the next call, and for gradients until they are
// ready. All other parameters have no memory, so that their use panics.
type strictOwner struct {
	params        []*Param
	values, grads map[*Param]device.Tensor
}

func (m *strictOwner) NeedValues(params []*Param) {
	for _, p := range m.params {
		p.Data = device.Tensor{}
		if slices.Contains(params, p) {
			p.Data = m.values[p]
		}
	}
}

func (m *strictOwner) NeedGrads(params []*Param) {
	for _, p := range params {
		p.Grad = m.grads[p]
	}
}

// TestModelsRequestParameters checks that a model requests the memory of parameters from their
// owner before each use, with unchanged results.
func TestModelsRequestParameters(t *testing.T) {
	for _, k := range slices.Concat(smallKinds, largeKinds) {
		t.Run(k.name, func(t *testing.T) {
			e := k.start(t, cpu.New(1), 0.1, device.FP32)
			b, params := e.every(0, 1), e.model.Params()
			pass := Pass{Train: true, Weight: 1, Seed: 8, Stride: 1}
			want := e.model.Forward(b, pass).Loss
			e.model.Backward(b, pass, nil)
			m := &strictOwner{params, map[*Param]device.Tensor{}, map[*Param]device.Tensor{}}
			var grads []string
			for _, p := range params {
				m.values[p], m.grads[p] = p.Data, e.device.Alloc(device.Float32, p.Len())
				grads = append(grads, fmt.Sprint(p.Grad.Floats()))
				p.Data, p.Grad = device.Tensor{}, device.Tensor{}
			}
			pass.Owner = m
			if got := e.model.Forward(b, pass).Loss; got != want {
				t.Errorf("loss %v, want %v", got, want)
			}
			e.model.Backward(b, pass, func(i int) {
				if fmt.Sprint(params[i].Grad.Floats()) != grads[i] {
					t.Errorf("gradient of %q differs", params[i].Name)
				}
				params[i].Grad = device.Tensor{}
			})
		})
	}
}
