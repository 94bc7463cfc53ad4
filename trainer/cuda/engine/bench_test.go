//go:build cuda

package engine_test

import (
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// BenchmarkGPT2 measures the operations of GPT-2 124M with 8 sequences of 1,024 tokens, the largest
// of each kind. It requires a GPU for meaningful results: see docs/gpu-development.md.
func BenchmarkGPT2(b *testing.B) {
	const sequences, length, width, heads, vocabulary = 8, 1024, 768, 12, 50304
	const rows = sequences * length
	d := open(b, engine.Options{})
	tensor := func(n int) device.Tensor { return d.Alloc(device.Float32, n) }
	matrix := func(rows, cols int) device.Matrix { return device.Rows(tensor(rows*cols), rows, cols) }
	stored := func(p device.Precision, rows, cols int) device.Matrix {
		return device.Rows(d.Alloc(d.Stored(p), rows*cols), rows, cols)
	}
	precisions := map[string]device.Precision{"fp32": device.FP32, "bf16": device.BF16}
	one := make([]float32, 1)
	// Each function does its work once; bytes and flops are per call. Calls return before the GPU has
	// finished, so each iteration waits for a batch of calls.
	const batch = 16
	measure := func(name string, bytes, flops float64, do func()) {
		b.Run(name, func(b *testing.B) {
			probe := tensor(1)
			do()
			d.Read(one, probe)
			for b.Loop() {
				for range batch {
					do()
				}
				d.Read(one, probe)
			}
			seconds := b.Elapsed().Seconds() / float64(b.N*batch)
			b.ReportMetric(seconds*1e9, "ns/op")
			b.ReportMetric(bytes/seconds/1e9, "GB/s")
			b.ReportMetric(flops/seconds/1e12, "TFLOP/s")
		})
	}
	x, y := matrix(rows, width), matrix(rows, width)
	w, bias, mean, rstd := matrix(4*width, width), tensor(4*width), tensor(rows), tensor(rows)
	gain, shift := tensor(width), tensor(width)
	measure("Add", 12*rows*width, 0, func() { d.Add(y.Data, x.Data, y.Data) })
	for name, p := range precisions {
		size := float64(d.Stored(p).Size())
		in, out, wide := stored(p, rows, width), stored(p, rows, width), stored(p, rows, 4*width)
		product := device.Product{C: wide, A: in, B: w.T(), Bias: bias, Precision: p}
		measure("MatMul/"+name, 0, 2*rows*width*4*width, func() { d.MatMul(product) })
		for suffix, dy := range map[string]device.Matrix{"": wide, "Square": out} {
			grad := device.Product{C: matrix(width, dy.Cols), A: in.T(), B: dy, Precision: p}
			measure("WeightGradient"+suffix+"/"+name, 0, 2*rows*width*float64(dy.Cols), func() { d.MatMul(grad) })
			grad.ColumnSum = tensor(dy.Cols)
			measure("WeightAndBiasGradient"+suffix+"/"+name, 0, 2*rows*width*float64(dy.Cols), func() { d.MatMul(grad) })
		}
		measure("GELU/"+name, 2*size*rows*4*width, 0, func() { d.Activate(device.GELU, wide.Data, wide.Data) })
		measure("LayerNorm/"+name, (4+size)*rows*width, 0, func() { d.LayerNorm(out, mean, rstd, x, gain, shift) })
		measure("AddLayerNorm/"+name, (8+2*size)*rows*width, 0, func() { d.AddLayerNorm(out, y, mean, rstd, x, in, gain, shift) })
		measure("LayerNormBackward/"+name, (12+size)*rows*width, 0, func() {
			d.LayerNormBackward(device.LayerNormGradients{DX: y, AddX: true, DW: gain, DB: shift, DY: in, X: x, W: gain, Mean: mean, RStd: rstd})
		})
		measure("ColumnSum/"+name, size*rows*4*width, 0, func() { d.ColumnSum(bias, wide, false) })
	}

	for name, p := range precisions {
		op := d.NewAttention(device.AttentionShape{Heads: heads, HeadSize: width / heads, MaxLength: length, Precision: p})
		qkv, out, dout := stored(p, rows, 3*width), stored(p, rows, width), stored(p, rows, width)
		part := func(m device.Matrix, i int) device.Matrix { return m.Sub(0, rows, i*width, (i+1)*width) }
		in := device.AttentionInput{Q: part(qkv, 0), K: part(qkv, 1), V: part(qkv, 2), Batch: sequences, Queries: length, Keys: length}
		grads, sums := stored(p, rows, 3*width), tensor(rows*heads)
		flops := 2.0 * sequences * length * length * width // of one matrix multiplication; the causal mask leaves half
		measure("Attention/"+name, 0, 2*flops/2, func() { op.Forward(out, sums, in) })
		measure("AttentionBackward/"+name, 0, 5*flops/2, func() { op.Backward(part(grads, 0), part(grads, 1), part(grads, 2), dout, out, sums, in) })
	}

	logits, labels, losses := matrix(rows, vocabulary), d.Alloc(device.Int32, rows), tensor(rows)
	measure("CrossEntropy/fp32", 8*rows*vocabulary, 0, func() { d.CrossEntropy(losses, logits, labels, 1) })
	narrow := stored(device.BF16, rows, vocabulary)
	measure("CrossEntropy/bf16", 4*rows*vocabulary, 0, func() { d.CrossEntropy(losses, narrow, labels, 1) })
	measure("Cast", 6*rows*vocabulary, 0, func() { d.Cast(narrow.Data, logits.Data) })
	table := device.Rows(logits.Data, vocabulary, width)
	measure("EmbedGrad", 8*rows*width, 0, func() { d.EmbedGrad(table, w, x, labels, length) })
	parameters := vocabulary * width
	value := logits.Data.Slice(0, parameters)
	average, squares := tensor(parameters), tensor(parameters)
	f := device.Factors{Beta1: 0.9, Beta2: 0.95, New1: 0.1, New2: 0.05, Keep: 1, Correction: 1, Eps: 1e-8, Rate: -1e-3, GradScale: 1}
	measure(fmt.Sprintf("Adam/%d", parameters), float64(28*parameters), 0, func() {
		d.Update(device.RuleAdam, device.Arrays{Value: value, Grad: value, State: [2]device.Tensor{average, squares}}, f)
	})
	measure("SumSquares", float64(4*parameters), 0, func() { d.SumSquares(value) })
}
