package nn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestStepAllocatesNothing checks that a step and an evaluation do not allocate memory, for all
// models, precisions, and thread counts.
func TestStepAllocatesNothing(t *testing.T) {
	for _, k := range slices.Concat(smallKinds, largeKinds) {
		for _, precision := range []device.Precision{device.FP32, device.BF16} {
			for _, threads := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s, precision %d, %d threads", k.name, precision, threads), func(t *testing.T) {
					e := k.start(t, cpu.New(threads), 0.1, precision)
					b, u := e.every(0, 1), newUpdates(e.device, e.model.Params())
					last := -1
					ready := func(i int) { last = i }
					pass := Pass{Train: true, Weight: 1, Seed: 8, Stride: 1}
					allocations := testing.AllocsPerRun(3, func() {
						e.model.Forward(b, pass)
						e.model.Backward(b, pass, ready)
						u.adamW(adamWOptions{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, MaxNorm: 1})
						e.model.Forward(b, Pass{})
						pass.Seed++
					})
					if allocations != 0 || last != 0 {
						t.Errorf("%v allocations in a step, which ended with parameter %d", allocations, last)
					}
				})
			}
		}
	}
}
