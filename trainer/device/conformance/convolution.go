package conformance

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkConvolution(s *suite) {
	shapes := []device.ConvolutionShape{
		{In: 1, Out: 1, Height: 1, Width: 1, Kernel: 1},
		{In: 8, Out: 17, Height: 20, Width: 33, Kernel: 3, Padding: 1}, // more than one block
		{In: 17, Out: 3, Height: 6, Width: 5, Kernel: 5, Padding: 2},
	}
	for _, kernel := range []int{1, 3, 5} {
		for padding := range 3 {
			shapes = append(shapes, device.ConvolutionShape{In: 3, Out: 5, Height: 6, Width: 9, Kernel: kernel, Padding: padding})
		}
	}
	for _, shape := range shapes {
		for _, shape.Precision = range []device.Precision{device.FP32, device.BF16} {
			op := s.d.NewConvolution(shape)
			for _, batch := range []int{3, 1} { // a smaller one with the same plan
				s.run(fmt.Sprintf("%d of %+v", batch, shape), func(s *suite) { s.convolution(op, shape, batch) })
			}
		}
	}
}

func (s *suite) convolution(op device.Convolution, shape device.ConvolutionShape, batch int) {
	inputs, outputs := shape.In*shape.Height*shape.Width, shape.Out*shape.OutHeight()*shape.OutWidth()
	terms := shape.In * shape.Kernel * shape.Kernel
	c := convolution{shape, batch, s.normal(batch * inputs), s.normal(shape.Out * terms), s.normal(batch * outputs)}
	b, startW, startB := s.normal(shape.Out), s.normal(len(c.w)), s.normal(shape.Out)

	x, w, dy := s.inputMatrix(c.x, batch, inputs, whole), s.inputMatrix(c.w, shape.Out, terms, whole), s.inputMatrix(c.dy, batch, outputs, whole)
	y, dx := s.emptyMatrix(batch, outputs), s.emptyMatrix(batch, inputs)
	dw, db := s.emptyMatrix(shape.Out, terms), s.empty(shape.Out)
	sumW, sumB := s.resultMatrix(startW, shape.Out, terms, whole), s.result(startB)
	op.Forward(y, x, w, s.input(b))
	op.WeightGrad(dw, dy, x, false)
	op.WeightGrad(sumW, dy, x, true)
	op.BiasGrad(db, dy, false)
	op.BiasGrad(sumB, dy, true)
	op.InputGrad(dx, dy, w)

	// The sum of a bias gradient starts from b, and dy is not rounded.
	wantDB, wantSumB := make([]sum, shape.Out), make([]sum, shape.Out)
	for i, d := range c.dy {
		channel := i % outputs / (shape.OutHeight() * shape.OutWidth())
		wantDB[channel].add(exact(d))
		wantSumB[channel].add(exact(d))
	}
	for i, v := range startB {
		wantSumB[i].add(exact(v))
	}
	if shape.Precision == device.BF16 {
		c.x, c.w, c.dy = allBFloat16(c.x), allBFloat16(c.w), allBFloat16(c.dy)
	}
	wantY, wantDX := make([]sum, len(c.dy)), make([]sum, len(c.x))
	wantDW, wantSumW := make([]sum, len(c.w)), make([]sum, len(c.w))
	for i := range wantY {
		wantY[i].add(exact(b[i%outputs/(shape.OutHeight()*shape.OutWidth())]))
	}
	c.each(func(x, w, y int) {
		wantY[y].add(exact(c.x[x]).times(exact(c.w[w])))
		wantDX[x].add(exact(c.dy[y]).times(exact(c.w[w])))
		wantDW[w].add(exact(c.dy[y]).times(exact(c.x[x])))
		wantSumW[w].add(exact(c.dy[y]).times(exact(c.x[x])))
	})
	for i, v := range startW {
		wantSumW[i].add(exact(v))
	}
	s.close("y", s.numbers(y), totals(wantY))
	s.close("dx", s.numbers(dx), totals(wantDX))
	s.close("dw", s.numbers(dw), totals(wantDW))
	s.close("dw, added", s.numbers(sumW), totals(wantSumW))
	s.close("db", s.floats(db), totals(wantDB))
	s.close("db, added", s.floats(sumB), totals(wantSumB))
}

func totals(v []sum) []real {
	out := make([]real, len(v))
	for i := range v {
		out[i] = v[i].real()
	}
	return out
}

// convolution holds a batch of images and the gradient of the output.
type convolution struct {
	shape    device.ConvolutionShape
	batch    int
	x, w, dy []float32
}

// each calls f with the indices in x, w, and y of all terms of the convolution.
func (c *convolution) each(f func(x, w, y int)) {
	s := c.shape
	high, wide := s.OutHeight(), s.OutWidth()
	for y := range c.dy {
		image, out, row, col := y/(s.Out*high*wide), y/(high*wide)%s.Out, y/wide%high, y%wide
		for w := range s.In * s.Kernel * s.Kernel {
			in, down, right := w/(s.Kernel*s.Kernel), w/s.Kernel%s.Kernel, w%s.Kernel
			r, l := row+down-s.Padding, col+right-s.Padding
			if r >= 0 && r < s.Height && l >= 0 && l < s.Width {
				f(((image*s.In+in)*s.Height+r)*s.Width+l, out*s.In*s.Kernel*s.Kernel+w, y)
			}
		}
	}
}
