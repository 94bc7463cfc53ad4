//go:build cuda

package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestAttentionOfLargeHeads compares attention with the CPU for head sizes that the conformance
// suite does not include: each kernel of attention_tensor.cu with its sizes, and heads that are
// too large for them, with and without dropout.
func TestAttentionOfLargeHeads(t *testing.T) {
	const batch, heads, queries = 2, 2, 70
	for _, size := range []int{48, 65, 128, 160, 256} {
		for p, most := range map[device.Precision]float64{device.FP32: 1e-5, device.BF16: 2e-2} {
			t.Run(fmt.Sprintf("%d precision %d", size, p), func(t *testing.T) {
				for _, drop := range []float32{0, 0.2} {
					want, got := attention(cpu.New(1), batch, heads, size, queries, p, drop), attention(open(t, engine.Options{}), batch, heads, size, queries, p, drop)
					for i, what := range []string{"out", "logSum", "dq", "dk", "dv"} {
						if e := distance(got[i], want[i]); !(e <= most) {
							t.Errorf("%s differs by %.2g with dropout %v", what, e, drop)
						}
					}
				}
			})
		}
	}
}

// attention returns the results of both passes.
func attention(d device.Device, batch, heads, size, queries int, p device.Precision, drop float32) [][]float32 {
	r, width := rand.New(rand.NewPCG(1, 2)), heads*size
	matrix := func() device.Matrix {
		wide := d.Alloc(device.Float32, batch*queries*width)
		device.Fill(d, wide, func(v []float32) {
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
		})
		stored := d.Alloc(d.Stored(p), wide.Len())
		if stored.Type() == device.Float32 {
			stored = wide
		} else {
			d.Cast(stored, wide)
		}
		return device.Rows(stored, batch*queries, width)
	}
	op := d.NewAttention(device.AttentionShape{Heads: heads, HeadSize: size, MaxLength: queries, Precision: p})
	in := device.AttentionInput{Q: matrix(), K: matrix(), V: matrix(), Batch: batch, Queries: queries, Keys: queries,
		Dropout: device.Dropout{P: drop, Key: 7, Stride: 1, PerSample: heads * queries * queries}}
	dout, out, dq, dk, dv := matrix(), matrix(), matrix(), matrix(), matrix()
	logSum := d.Alloc(device.Float32, batch*heads*queries)
	op.Forward(out, logSum, in)
	op.Backward(dq, dk, dv, dout, out, logSum, in)
	var all [][]float32
	for _, t := range []device.Tensor{out.Data, logSum, dq.Data, dk.Data, dv.Data} {
		wide := t
		if t.Type() == device.BFloat16 {
			wide = d.Alloc(device.Float32, t.Len())
			d.Cast(wide, t)
		}
		all = append(all, append([]float32(nil), device.Floats(d, wide)...))
	}
	return all
}

// distance returns the distance of two vectors, relative to the length of the second.
func distance(a, b []float32) float64 {
	var off, length float64
	for i := range b {
		off += float64(a[i]-b[i]) * float64(a[i]-b[i])
		length += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(off / length)
}
