package cpu_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// trackedTensors creates tensors and detects whether their memory is released. They have at least 4
// elements, because the runtime allocates smaller objects together.
type trackedTensors struct {
	floats []weak.Pointer[float32]
	ints   []weak.Pointer[int32]
}

func (l *trackedTensors) rows(rows, cols int) device.Matrix {
	return device.Rows(l.tensor(rows*cols), rows, cols)
}

func (l *trackedTensors) tensor(n int) device.Tensor {
	v := make([]float32, n)
	l.floats = append(l.floats, weak.Make(&v[0]))
	return device.Host(v)
}

func (l *trackedTensors) tokens(n int) device.Tensor {
	v := make([]int32, n)
	l.ints = append(l.ints, weak.Make(&v[0]))
	return device.HostInts(v)
}

// alive returns the number of tensors that are still alive.
func (l *trackedTensors) alive() int {
	runtime.GC()
	n := 0
	for _, p := range l.floats {
		if p.Value() != nil {
			n++
		}
	}
	for _, p := range l.ints {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// TestOperationsReleaseTensors checks that the device does not keep the tensors of an operation
// alive after the operation has finished.
func TestOperationsReleaseTensors(t *testing.T) {
	const rows, cols = 32, 64
	pool := device.PoolShape{Channels: 1, Height: 8, Width: 8, Size: 2}
	d := cpu.New(2)
	convolution := d.NewConvolution(device.ConvolutionShape{In: 1, Out: 8, Height: 8, Width: 8, Kernel: 3, Padding: 1})
	attention := d.NewAttention(device.AttentionShape{Heads: 2, HeadSize: 32, MaxLength: rows})
	input := func(l *trackedTensors) device.AttentionInput {
		return device.AttentionInput{Q: l.rows(rows, cols), K: l.rows(rows, cols), V: l.rows(rows, cols), Batch: 1, Queries: rows, Keys: rows}
	}
	for name, run := range map[string]func(l *trackedTensors){
		"Add":      func(l *trackedTensors) { d.Add(l.tensor(cols), l.tensor(cols), l.tensor(cols)) },
		"Activate": func(l *trackedTensors) { d.Activate(device.ReLU, l.tensor(cols), l.tensor(cols)) },
		"Dropout": func(l *trackedTensors) {
			d.Dropout(l.tensor(cols), l.tensor(cols), device.Dropout{P: 0.5, PerSample: cols, Stride: 1})
		},
		"ColumnSum": func(l *trackedTensors) { d.ColumnSum(l.tensor(cols), l.rows(rows, cols), false) },
		"LayerNorm": func(l *trackedTensors) {
			d.LayerNorm(l.rows(rows, cols), l.tensor(rows), l.tensor(rows), l.rows(rows, cols), l.tensor(cols), l.tensor(cols))
		},
		"LayerNormBackward": func(l *trackedTensors) {
			d.LayerNormBackward(device.LayerNormGradients{DX: l.rows(rows, cols), AddX: true, DW: l.tensor(cols), DB: l.tensor(cols),
				DY: l.rows(rows, cols), X: l.rows(rows, cols), W: l.tensor(cols), Mean: l.tensor(rows), RStd: l.tensor(rows)})
		},
		"Embed": func(l *trackedTensors) {
			d.Embed(l.rows(rows, cols), l.tokens(rows), l.rows(9, cols), l.rows(rows, cols), rows, 0)
		},
		"EmbedGrad": func(l *trackedTensors) {
			d.EmbedGrad(l.rows(9, cols), l.rows(rows, cols), l.rows(rows, cols), l.tokens(rows), rows)
		},
		"MatMul": func(l *trackedTensors) {
			d.MatMul(device.Product{C: l.rows(rows, rows), A: l.rows(rows, cols), B: l.rows(cols, rows), Bias: l.tensor(rows), Activation: device.GELU, Pre: l.rows(rows, rows)})
		},
		"Attention": func(l *trackedTensors) { attention.Forward(l.rows(rows, cols), l.tensor(2*rows), input(l)) },
		"AttentionGrad": func(l *trackedTensors) {
			attention.Backward(l.rows(rows, cols), l.rows(rows, cols), l.rows(rows, cols), l.rows(rows, cols), l.rows(rows, cols), l.tensor(2*rows), input(l))
		},
		"Convolution": func(l *trackedTensors) {
			convolution.Forward(l.rows(rows, 512), l.rows(rows, 64), l.rows(8, 9), l.tensor(8))
		},
		"CrossEntropy": func(l *trackedTensors) { d.CrossEntropy(l.tensor(rows), l.rows(rows, cols), l.tokens(rows), 1) },
		"SquaredError": func(l *trackedTensors) { d.SquaredError(l.tensor(rows), l.rows(rows, cols), l.tensor(rows*cols), 1) },
		"ArgMax":       func(l *trackedTensors) { d.ArgMax(l.tokens(rows), l.rows(rows, cols)) },
		"CountEqual":   func(l *trackedTensors) { d.CountEqual(l.tokens(rows), l.tokens(rows)) },
		"MaxPool":      func(l *trackedTensors) { d.MaxPool(l.rows(rows, 16), l.tokens(rows*16), l.rows(rows, 64), pool) },
		"MaxPoolGrad":  func(l *trackedTensors) { d.MaxPoolGrad(l.rows(rows, 64), l.rows(rows, 16), l.tokens(rows*16), pool) },
		"SumSquares":   func(l *trackedTensors) { d.SumSquares(l.tensor(cols)) },
		"SGD": func(l *trackedTensors) {
			d.Update(device.RuleSGD, device.Arrays{Value: l.tensor(cols), Grad: l.tensor(cols), State: [2]device.Tensor{l.tensor(cols)}}, device.Factors{})
		},
		"Adam": func(l *trackedTensors) {
			d.Update(device.RuleAdam, device.Arrays{Value: l.tensor(cols), Grad: l.tensor(cols), State: [2]device.Tensor{l.tensor(cols), l.tensor(cols)}}, device.Factors{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l trackedTensors
			run(&l)
			if n := l.alive(); n != 0 {
				t.Errorf("%d of %d tensors are kept", n, len(l.floats)+len(l.ints))
			}
		})
	}
}
