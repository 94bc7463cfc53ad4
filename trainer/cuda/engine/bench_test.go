//go:build cuda

package engine_test

import (
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// The operations of GPT-2 124M with 8 sequences of 1024 tokens, the largest each of
// its kind, tuned. Real figures take a GPU: docs/gpu.md says how.
func BenchmarkGPT2(b *testing.B) {
	const sequences, length, width, heads, vocabulary = 8, 1024, 768, 12, 50304
	const rows = sequences * length
	d := open(b, engine.Options{Tune: true})
	tensor := func(n int) device.Tensor { return d.Alloc(device.Float32, n) }
	matrix := func(rows, cols int) device.Matrix { return device.Rows(tensor(rows*cols), rows, cols) }
	one := make([]float32, 1)
	// Each does its work n times; bytes and operations are those of one.
	measure := func(name string, bytes, flops float64, do func()) {
		b.Run(name, func(b *testing.B) {
			probe := tensor(1)
			do()
			d.Read(one, probe)
			for b.Loop() {
				do()
			}
			d.Read(one, probe)
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(bytes/seconds/1e9, "GB/s")
			b.ReportMetric(flops/seconds/1e12, "TFLOP/s")
		})
	}
	x, y, wide := matrix(rows, width), matrix(rows, width), matrix(rows, 4*width)
	w, bias, mean, rstd := matrix(4*width, width), tensor(4*width), tensor(rows), tensor(rows)
	gain, shift := tensor(width), tensor(width)
	for name, p := range map[string]device.Precision{"fp32": device.FP32, "bf16": device.BF16} {
		product := device.Product{C: wide, A: x, B: w.T(), Bias: bias, Precision: p}
		measure("MatMul/"+name, 0, 2*rows*width*4*width, func() { d.MatMul(product) })
	}
	measure("Add", 12*rows*width, 0, func() { d.Add(y.Data, x.Data, y.Data) })
	measure("GELU", 8*rows*4*width, 0, func() { d.Activate(device.GELU, wide.Data, wide.Data) })
	measure("LayerNorm", 8*rows*width, 0, func() { d.LayerNorm(y, mean, rstd, x, gain, shift) })
	measure("LayerNormGrad", 12*rows*width, 0, func() { d.LayerNormGrad(y, y, x, gain, mean, rstd, false) })
	measure("LayerNormParamGrad", 8*rows*width, 0, func() { d.LayerNormParamGrad(gain, shift, y, x, mean, rstd, false) })
	measure("ColumnSum", 4*rows*4*width, 0, func() { d.ColumnSum(bias, wide, false) })

	for name, p := range map[string]device.Precision{"fp32": device.FP32, "bf16": device.BF16} {
		op := d.NewAttention(device.AttentionShape{Heads: heads, HeadSize: width / heads, MaxLength: length, Precision: p})
		qkv := matrix(rows, 3*width)
		part := func(m device.Matrix, i int) device.Matrix { return m.Sub(0, rows, i*width, (i+1)*width) }
		in := device.AttentionInput{Q: part(qkv, 0), K: part(qkv, 1), V: part(qkv, 2), Batch: sequences, Queries: length, Keys: length}
		grads, sums := matrix(rows, 3*width), tensor(rows*heads)
		flops := 2.0 * sequences * length * length * width // of one product, of which the mask leaves half
		measure("Attention/"+name, 0, 2*flops/2, func() { op.Forward(y, sums, in) })
		measure("AttentionBackward/"+name, 0, 5*flops/2, func() { op.Backward(part(grads, 0), part(grads, 1), part(grads, 2), x, y, sums, in) })
	}

	logits, labels, losses := matrix(rows, vocabulary), d.Alloc(device.Int32, rows), tensor(rows)
	measure("CrossEntropy", 8*rows*vocabulary, 0, func() { d.CrossEntropy(losses, logits, labels, 1) })
	table := device.Rows(logits.Data, vocabulary, width)
	measure("EmbedGrad", 8*rows*width, 0, func() { d.EmbedGrad(table, w, x, labels, length) })
	parameters := vocabulary * width
	value := logits.Data.Slice(0, parameters)
	average, squares := tensor(parameters), tensor(parameters)
	f := device.AdamFactors{Beta1: 0.9, Beta2: 0.95, New1: 0.1, New2: 0.05, Keep: 1, Correction: 1, Eps: 1e-8, Rate: -1e-3, GradScale: 1}
	measure(fmt.Sprintf("Adam/%d", parameters), float64(28*parameters), 0, func() { d.Adam(value, value, average, squares, f) })
	measure("SumSquares", float64(4*parameters), 0, func() { d.SumSquares(value) })
}
