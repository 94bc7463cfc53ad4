package conformance

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkPool(s *suite) {
	for _, shape := range []device.PoolShape{
		{Channels: 1, Height: 1, Width: 1, Size: 1},
		{Channels: 2, Height: 4, Width: 6, Size: 2},
		{Channels: 3, Height: 5, Width: 7, Size: 2},
		{Channels: 2, Height: 11, Width: 8, Size: 3},
		{Channels: 16, Height: 28, Width: 34, Size: 2},
		{Channels: 1, Height: 3, Width: 40, Size: 2},
	} {
		for _, batch := range []int{1, 5} {
			s.run(fmt.Sprintf("%d of %+v", batch, shape), func(s *suite) { s.pool(shape, batch) })
		}
	}
}

func (s *suite) pool(shape device.PoolShape, batch int) {
	inputs, outputs := shape.Channels*shape.Height*shape.Width, shape.Channels*shape.OutHeight()*shape.OutWidth()
	x, dy := s.normal(batch*inputs), s.normal(batch*outputs)
	for i := range x {
		switch x[i] = float32(math.Round(float64(x[i])) + 0); { // so that some are equal and none is -0
		case i%97 == 96:
			x[i] = float32(math.NaN())
		case i%11 == 10:
			x[i] = float32(math.Inf(i%2*2 - 1))
		}
	}
	want, index, dx := make([]float32, len(dy)), make([]int32, len(dy)), make([]float32, len(x))
	for o := range want {
		row, col := o/shape.OutWidth(), o%shape.OutWidth()
		plane := row / shape.OutHeight()
		row = plane*shape.Height + row%shape.OutHeight()*shape.Size
		best := -1
		for e := range shape.Size * shape.Size {
			at := (row+e/shape.Size)*shape.Width + col*shape.Size + e%shape.Size
			// If a square has two NaNs, the chosen one is unspecified, so no square has two.
			if best >= 0 && nan(x[best]) && nan(x[at]) {
				x[at] = 0
			}
			if best < 0 || x[at] > x[best] || nan(x[at]) {
				best, want[o], index[o] = at, x[at], int32(e)
			}
		}
		dx[best] = dy[o]
	}
	y, chosen := s.emptyMatrix(batch, outputs), s.emptyInts(len(dy))
	s.d.MaxPool(y, chosen, s.inputMatrix(x, batch, inputs, whole), shape)
	s.same("y", s.numbers(y), want)
	s.sameInts("chosen", s.ints(chosen), index)

	grad := s.emptyMatrix(batch, inputs)
	s.d.MaxPoolGrad(grad, s.inputMatrix(dy, batch, outputs, whole), s.tokens(index), shape)
	s.same("dx", s.numbers(grad), dx)
}
