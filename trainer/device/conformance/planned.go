package conformance

import "github.com/ddpbatch/ddpbatch/trainer/device"

// plannedOperations returns the planned operations, and pooling.
func plannedOperations() []operation {
	attention := func(name string, p float32, precision device.Precision) operation {
		return operation{name, func(s *suite) (step, tensors) {
			c := sequences{AttentionShape: device.AttentionShape{Heads: 3, HeadSize: 64, MaxLength: 257, Precision: precision}, batch: 3, queries: 257, keys: 257}
			c.fill(s)
			width, rows := c.Heads*c.HeadSize, c.batch*c.queries
			in := s.attentionInput(&c, device.Dropout{P: p, Key: 1, First: 1, Stride: 2, PerSample: c.perSample()})
			out, logSum := s.matrixOf(c.stored, nans(rows*width), rows, width, whole, true), s.empty(rows*c.Heads)
			dout := s.matrixOf(c.stored, c.dout, rows, width, whole, false)
			dq, dk, dv := s.packed(c.stored, nans(len(c.q)), nans(len(c.k)), nans(len(c.v)), width, true)
			op := s.d.NewAttention(c.AttentionShape)
			// dq begins before dk and dv in the same rows, so its data covers all three.
			return func() {
				op.Forward(out, logSum, in)
				op.Backward(dq, dk, dv, dout, out, logSum, in)
			}, tensors{out.Data, logSum, dq.Data}
		}}
	}
	return []operation{
		attention("Attention", 0, device.FP32),
		attention("AttentionDropout", 0.2, device.FP32),
		attention("AttentionBF16", 0.2, device.BF16),
		{"Generation", func(s *suite) (step, tensors) {
			c := sequences{AttentionShape: device.AttentionShape{Heads: 12, HeadSize: 64, MaxLength: 1024}, batch: 1, queries: 1, keys: 1000}
			c.fill(s)
			in, out, logSum := s.attentionInput(&c, device.Dropout{}), s.emptyMatrix(1, len(c.q)), s.empty(c.Heads)
			op := s.d.NewAttention(c.AttentionShape)
			return func() { op.Forward(out, logSum, in) }, tensors{out.Data, logSum}
		}},
		convolutionOf("Convolution", device.FP32),
		convolutionOf("ConvolutionBF16", device.BF16),
		{"MaxPool", func(s *suite) (step, tensors) {
			shape := device.PoolShape{Channels: 8, Height: 29, Width: 31, Size: 2}
			const batch = 33
			inputs, outputs := shape.Channels*shape.Height*shape.Width, shape.Channels*shape.OutHeight()*shape.OutWidth()
			x, dx := s.inputMatrix(s.normal(batch*inputs), batch, inputs, whole), s.emptyMatrix(batch, inputs)
			y, chosen := s.emptyMatrix(batch, outputs), s.emptyInts(batch*outputs)
			return func() {
				s.d.MaxPool(y, chosen, x, shape)
				s.d.MaxPoolGrad(dx, y, chosen, shape)
			}, tensors{y.Data, chosen, dx.Data}
		}},
	}
}

// convolutionOf returns a convolution of 33 images with all its gradients.
func convolutionOf(name string, precision device.Precision) operation {
	return operation{name, func(s *suite) (step, tensors) {
		shape := device.ConvolutionShape{In: 8, Out: 16, Height: 28, Width: 27, Kernel: 3, Padding: 1, Precision: precision}
		const batch = 33
		inputs, outputs, terms := shape.In*shape.Height*shape.Width, shape.Out*shape.OutHeight()*shape.OutWidth(), shape.In*shape.Kernel*shape.Kernel
		x, w := s.inputMatrix(s.normal(batch*inputs), batch, inputs, whole), s.inputMatrix(s.normal(shape.Out*terms), shape.Out, terms, whole)
		b, db := s.input(s.normal(shape.Out)), s.result(s.normal(shape.Out))
		y, dx, dw := s.emptyMatrix(batch, outputs), s.emptyMatrix(batch, inputs), s.resultMatrix(s.normal(shape.Out*terms), shape.Out, terms, whole)
		op := s.d.NewConvolution(shape)
		return func() {
			op.Forward(y, x, w, b)
			op.WeightGrad(dw, y, x, true)
			op.BiasGrad(db, y, true)
			op.InputGrad(dx, y, w)
		}, tensors{y.Data, dx.Data, dw.Data, db}
	}}
}
