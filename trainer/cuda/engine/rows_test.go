//go:build cuda

package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestKeptRowsHaveTheSameBits checks that the loss in bfloat16 does not depend on whether rows fit
// into shared memory.
func TestKeptRowsHaveTheSameBits(t *testing.T) {
	const rows = 3
	for _, cols := range []int{8, 2056, 8192, 8200, 30000} {
		r := rand.New(rand.NewPCG(1, 2))
		values, labels := make([]float32, rows*cols), make([]int32, rows)
		for i := range values {
			values[i] = float32(3 * r.NormFloat64())
		}
		for i := range labels {
			labels[i] = int32(r.IntN(cols))
		}
		run := func(shared int) []float32 {
			d := open(t, engine.Options{})
			d.LimitShared(shared)
			wide, narrow := d.Alloc(device.Float32, rows*cols), d.Alloc(device.BFloat16, rows*cols)
			d.Write(wide, values)
			d.Cast(narrow, wide)
			losses, chosen := d.Alloc(device.Float32, rows), d.Alloc(device.Int32, rows)
			d.WriteInts(chosen, labels)
			d.CrossEntropy(losses, device.Rows(narrow, rows, cols), chosen, 0.25)
			d.Cast(wide, narrow)
			return slices.Concat(device.Floats(d, losses), device.Floats(d, wide))
		}
		if kept, read := run(227<<10), run(0); !slices.Equal(kept, read) {
			t.Errorf("%d columns: the results differ", cols)
		}
	}
}
