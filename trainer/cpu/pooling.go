package cpu

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// pooling is a max-pooling operation, divided among threads by channels of images.
type pooling struct {
	device.PoolShape
	y, x   []float32 // or their gradients
	chosen []int32
	planes int
	grad   bool
}

// MaxPool computes the maximum of each square.
func (d *Device) MaxPool(y device.Matrix, chosen device.Tensor, x device.Matrix, s device.PoolShape) {
	d.pooling.run(&d.pool, y, chosen, x, s, false)
}

// MaxPoolGrad copies each gradient to the element that was the maximum.
func (d *Device) MaxPoolGrad(dx, dy device.Matrix, chosen device.Tensor, s device.PoolShape) {
	d.pooling.run(&d.pool, dy, chosen, dx, s, true)
}

func (j *pooling) run(p *pool, y device.Matrix, chosen device.Tensor, x device.Matrix, s device.PoolShape, grad bool) {
	if s.Size < 1 || y.Rows != x.Rows || x.Cols != s.Channels*s.Height*s.Width || y.Cols != s.Channels*s.OutHeight()*s.OutWidth() || chosen.Len() != y.Data.Len() {
		panic(fmt.Sprintf("cpu: pooling %+v of %dx%d to %dx%d with %d choices", s, x.Rows, x.Cols, y.Rows, y.Cols, chosen.Len()))
	}
	*j = pooling{PoolShape: s, y: whole("images", y), x: whole("images", x), chosen: chosen.Ints(), planes: x.Rows * s.Channels, grad: grad}
	p.do(j, j.planes, len(j.x))
	*j = pooling{}
}

func (j *pooling) part(thread, threads int) {
	first, end := share(j.planes, 1, thread, threads)
	height, width := j.OutHeight(), j.OutWidth()
	for i := first; i < end; i++ {
		x := j.x[i*j.Height*j.Width:][:j.Height*j.Width]
		y, chosen := j.y[i*height*width:][:height*width], j.chosen[i*height*width:][:height*width]
		if j.grad {
			clear(x)
		}
		for row := range height {
			for col := range width {
				square := x[row*j.Size*j.Width+col*j.Size:]
				at := row*width + col
				switch {
				case j.grad:
					square[j.offset(int(chosen[at]))] = y[at]
				case j.Size == 2:
					k := largestOfFour(square[0], square[1], square[j.Width], square[j.Width+1])
					y[at], chosen[at] = square[j.offset(k)], int32(k)
				default:
					y[at], chosen[at] = j.largest(square)
				}
			}
		}
	}
}

// offset returns the offset of element k of a square.
func (j *pooling) offset(k int) int {
	if j.Size == 2 { // without divisions, which take longer than the rest
		return k>>1*j.Width + k&1
	}
	return k/j.Size*j.Width + k%j.Size
}

// largest returns the first maximum of the square at the start of a slice, with its index in the
// square. If there is a NaN, it returns the first one.
func (j *pooling) largest(square []float32) (most float32, at int32) {
	most = square[0]
	for k := range j.Size {
		for l, v := range square[k*j.Width:][:j.Size] {
			if v > most || v != v && most == most {
				most, at = v, int32(k*j.Size+l)
			}
		}
	}
	return most, at
}

// largestOfFour returns the index of the first maximum, or of the first NaN. It has no
// unpredictable branches and takes a third of the time.
func largestOfFour(a, b, c, d float32) int {
	return 3 - int(max(orderKey(a)<<2|3, orderKey(b)<<2|2, orderKey(c)<<2|1, orderKey(d)<<2)&3)
}

// orderKey maps a float to an integer with the same order. Both zeros map to the same value, and
// NaN maps to the largest.
func orderKey(v float32) int64 {
	if v != v {
		return math.MaxInt32
	}
	bits := int32(math.Float32bits(v + 0)) // -0 + 0 is 0
	return int64(bits ^ bits>>31&math.MaxInt32)
}
