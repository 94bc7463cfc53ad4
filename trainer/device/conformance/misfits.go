package conformance

import "github.com/ddpbatch/ddpbatch/trainer/device"

// checkMisfits calls operations with arguments that do not match, which must panic.
func checkMisfits(s *suite) {
	d := s.d
	f := func(n int) device.Tensor { return d.Alloc(device.Float32, n) }
	ints := func(n int) device.Tensor { return d.Alloc(device.Int32, n) }
	m := func(rows, cols int) device.Matrix { return device.Rows(f(rows*cols), rows, cols) }
	pool := device.PoolShape{Channels: 1, Height: 4, Width: 4, Size: 2}
	conv := d.NewConvolution(device.ConvolutionShape{In: 1, Out: 2, Height: 4, Width: 4, Kernel: 3, Padding: 1})
	attention := d.NewAttention(device.AttentionShape{Heads: 2, HeadSize: 3, MaxLength: 4})
	for name, call := range map[string]func(){
		"Write":           func() { d.Write(f(3), make([]float32, 2)) },
		"WriteType":       func() { d.Write(ints(3), make([]float32, 3)) },
		"WriteInts":       func() { d.WriteInts(ints(2), make([]int32, 3)) },
		"Read":            func() { d.Read(make([]float32, 2), f(3)) },
		"ReadInts":        func() { d.ReadInts(make([]int32, 3), ints(2)) },
		"Copy":            func() { d.Copy(f(2), f(3)) },
		"CopyType":        func() { d.Copy(f(2), ints(2)) },
		"MatMulTerms":     func() { d.MatMul(device.Product{C: m(2, 3), A: m(2, 4), B: m(5, 3)}) },
		"MatMulRows":      func() { d.MatMul(device.Product{C: m(2, 3), A: m(3, 4), B: m(4, 3)}) },
		"MatMulCols":      func() { d.MatMul(device.Product{C: m(2, 3), A: m(2, 4), B: m(4, 4)}) },
		"MatMulBias":      func() { d.MatMul(device.Product{C: m(2, 3), A: m(2, 4), B: m(4, 3), Bias: f(2)}) },
		"MatMulColumnSum": func() { d.MatMul(device.Product{C: m(2, 3), A: m(2, 4), B: m(4, 3), ColumnSum: f(2)}) },
		"MatMulColumnSumBias": func() {
			d.MatMul(device.Product{C: m(2, 3), A: m(2, 4), B: m(4, 3), ColumnSum: f(3), Bias: f(3)})
		},
		"MatMulPre": func() { d.MatMul(device.Product{C: m(2, 3), A: m(2, 4), B: m(4, 3), Activation: device.ReLU}) },
		"MatMulGradient": func() {
			d.MatMul(device.Product{C: m(2, 3), A: m(2, 4), B: m(4, 3), Activation: device.ReLU, Gradient: true, Pre: m(2, 3)})
		},
		"AddLayerNorm": func() { d.AddLayerNorm(m(2, 3), m(2, 3), f(2), f(2), m(2, 3), m(3, 3), f(3), f(3)) },
		"ColumnSum":    func() { d.ColumnSum(f(2), m(2, 3), false) },
		"Add":          func() { d.Add(f(3), f(3), f(2)) },
		"Activate":     func() { d.Activate(device.ReLU, f(3), f(2)) },
		"ActivateGrad": func() { d.ActivateGrad(device.Tanh, f(3), f(3), f(3), f(2)) },
		"Dropout":      func() { d.Dropout(f(3), f(2), device.Dropout{P: 0.5, Stride: 1, PerSample: 3}) },
		"Cast":         func() { d.Cast(f(3), d.Alloc(device.BFloat16, 2)) },
		"LayerNorm":    func() { d.LayerNorm(m(2, 3), f(2), f(2), m(2, 3), f(3), f(2)) },
		"LayerNormBackwardRows": func() {
			d.LayerNormBackward(device.LayerNormGradients{DX: m(2, 3), DW: f(3), DB: f(3), DY: m(2, 3), X: m(2, 3), W: f(3), Mean: f(2), RStd: f(3)})
		},
		"LayerNormBackwardCols": func() {
			d.LayerNormBackward(device.LayerNormGradients{DX: m(2, 3), DW: f(3), DB: f(2), DY: m(2, 3), X: m(2, 3), W: f(3), Mean: f(2), RStd: f(2)})
		},
		"LayerNormBackwardCopy": func() {
			d.LayerNormBackward(device.LayerNormGradients{DX: m(2, 3), Copy: d.Alloc(device.BFloat16, 5), DW: f(3), DB: f(3), DY: m(2, 3), X: m(2, 3), W: f(3), Mean: f(2), RStd: f(2)})
		},
		"Embed":      func() { d.Embed(m(2, 3), ints(3), m(5, 3), m(2, 3), 2, 0) },
		"EmbedPlace": func() { d.Embed(m(2, 3), ints(2), m(5, 3), m(2, 3), 2, 1) },
		"EmbedGrad":  func() { d.EmbedGrad(m(5, 3), m(2, 2), m(2, 3), ints(2), 2) },
		"Attention": func() {
			x := m(4, 6)
			attention.Forward(m(4, 6), f(8), device.AttentionInput{Q: x, K: x, V: m(3, 6), Batch: 1, Queries: 4, Keys: 4})
		},
		"AttentionLength": func() {
			x := m(5, 6)
			attention.Forward(m(5, 6), f(10), device.AttentionInput{Q: x, K: x, V: x, Batch: 1, Queries: 5, Keys: 5})
		},
		"Convolution":  func() { conv.Forward(m(2, 32), m(2, 16), m(2, 9), f(3)) },
		"MaxPool":      func() { d.MaxPool(m(2, 4), ints(4), m(2, 16), pool) },
		"MaxPoolGrad":  func() { d.MaxPoolGrad(m(2, 16), m(2, 3), ints(6), pool) },
		"CrossEntropy": func() { d.CrossEntropy(f(2), m(2, 3), ints(3), 1) },
		"SquaredError": func() { d.SquaredError(f(2), m(2, 3), f(5), 1) },
		"ArgMax":       func() { d.ArgMax(ints(3), m(2, 3)) },
		"CountEqual":   func() { d.CountEqual(ints(3), ints(2)) },
		"Scale":        func() { d.Scale(f(3), f(2), 1) },
		"SGD":          func() { d.Update(device.RuleSGD, arrays(f(3), f(3), f(2)), device.Factors{}) },
		"Adam":         func() { d.Update(device.RuleAdam, arrays(f(3), f(3), f(3), f(2)), device.Factors{}) },
		"AdamRounded": func() {
			d.Update(device.RuleAdam, device.Arrays{Value: f(3), Grad: f(3), State: [2]device.Tensor{f(3), f(3)}, Rounded: d.Alloc(device.BFloat16, 2)}, device.Factors{})
		},
		"unknown rule": func() { d.Update("none", arrays(f(3), f(3)), device.Factors{}) },
	} {
		s.run(name, func(s *suite) {
			defer func() {
				if recover() == nil {
					s.Error("no panic")
				}
			}()
			call()
		})
	}
}
